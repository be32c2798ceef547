"""Writes into a cache of keys: what each reads, writes and leaves where it is, wherever it is told.

The cache is [2, 3, 16, 4] of float32, the keys of two positions are [2, 3, 2, 4]: 48 elements of 4
bytes.  What a write touches is what running it on the CPU changes; what it reads is derived by
hand: the new rows, their places (int64), and the old rows where they are combined.
"""

from __future__ import annotations

from collections import Counter

import pytest

torch = pytest.importorskip("torch")

import flint  # noqa: E402
from flint.passes import apply  # noqa: E402
from flint.simulation.memory import peak_memory  # noqa: E402
from tests.converters.chakra.check.traces import read_nodes  # noqa: E402

pytestmark = pytest.mark.xdist_group("torch-writes-in-place")

B, H, T, D = 2, 3, 16, 4
CACHE = B * H * T * D * 4
#: Keys of two positions; their places, also where they are expanded to each of their elements.
ROWS, WHERE = B * H * 2 * D * 4, 2 * 8
#: One position's.
ROW = ROWS // 2


def places(where):
    return where.view(1, 1, 2, 1).expand(B, H, 2, D)


def put(cache, key, value, accumulate=False):
    return torch.ops.aten.index_put_(cache, key, value, accumulate)


def set_item(cache, key, value):
    cache[key] = value


ALL = slice(None)

#: What is done to a cache [B, H, T, D] with keys and their two positions, and what it reads.
WRITES = {
    "index_copy_": (lambda c, k, p, *_: c.index_copy_(2, p, k), ROWS + WHERE),
    "index_copy_ along the first dim": (
        lambda c, k, p, q, m, o: c.index_copy_(0, q[:1], o[:1]), CACHE // B + 8,
    ),
    "index_copy_ in a layer": (lambda c, k, p, *_: c[1].index_copy_(1, p, k[1]), ROWS // B + WHERE),
    "index_copy_ through a transposed view": (
        lambda c, k, p, *_: c.transpose(1, 2).index_copy_(1, p, k.transpose(1, 2)), ROWS + WHERE,
    ),
    "slices and a tensor": (lambda c, k, p, *_: set_item(c, (ALL, ALL, p), k), ROWS + WHERE),
    "a layer, slices and a tensor": (
        lambda c, k, p, *_: set_item(c[1], (ALL, p), k[1]), ROWS // B + WHERE,
    ),
    "two tensors apart": (
        lambda c, k, p, q, *_: put(c, (q, None, p), k[:, :, 0]), ROW + 2 * WHERE,
    ),
    "one value for all": (
        lambda c, k, p, *_: put(c, (None, None, p), k[:1, :1, :1, :1]), 4 + WHERE,
    ),
    "index_put_ that adds": (
        lambda c, k, p, *_: put(c, (None, None, p), k, True), 2 * ROWS + WHERE,
    ),
    "index_add_": (lambda c, k, p, *_: c.index_add_(2, p, k, alpha=2), 2 * ROWS + WHERE),
    "index_fill_": (lambda c, k, p, *_: c.index_fill_(2, p, 1.5), WHERE),
    "index_fill_ with a tensor": (
        lambda c, k, p, *_: c.index_fill_(2, p, k[0, 0, 0, 0]), 4 + WHERE,
    ),
    "index_reduce_": (lambda c, k, p, *_: c.index_reduce_(2, p, k, "amax"), 2 * ROWS + WHERE),
    "scatter_": (lambda c, k, p, *_: c.scatter_(2, places(p), k), ROWS + WHERE),
    "scatter_ of a number": (lambda c, k, p, *_: c.scatter_(2, places(p), 1.5), WHERE),
    "scatter_ that multiplies": (
        lambda c, k, p, *_: c.scatter_(2, places(p), k, reduce="multiply"), 2 * ROWS + WHERE,
    ),
    "scatter_add_": (lambda c, k, p, *_: c.scatter_add_(2, places(p), k), 2 * ROWS + WHERE),
    "scatter_reduce_": (
        lambda c, k, p, *_: c.scatter_reduce_(2, places(p), k, "amax"), 2 * ROWS + WHERE,
    ),
    "put_": (lambda c, k, p, *_: c.put_(p, k[0, 0, :, 0]), 2 * 4 + WHERE),
    "copy_ into a slice": (lambda c, k, p, *_: c[:, :, 5:7].copy_(k), ROWS),
    "copy_ into every other": (lambda c, k, p, *_: c[:, :, 3:7:2].copy_(k), ROWS),
    "one position": (lambda c, k, p, *_: set_item(c, (ALL, ALL, 5), k[:, :, 0]), ROW),
    "narrow": (lambda c, k, p, *_: c.narrow(2, 5, 1).copy_(k[:, :, :1]), ROW),
    "fill_ of a slice": (lambda c, k, p, *_: c[:, :, 5:7].fill_(1.5), 0),
    "add_ to a slice": (lambda c, k, p, *_: c[:, :, 5:7].add_(k), 2 * ROWS),
    "_foreach_copy_": (
        lambda c, k, p, *_: torch._foreach_copy_([c[:, :, 3:5], c[:, :, 8:10]], [k, k]), 2 * ROWS,
    ),
    "_foreach_add_": (
        lambda c, k, p, *_: torch._foreach_add_([c[:, :, 3:5], c[:, :, 8:10]], [k, k]), 4 * ROWS,
    ),
    "masked_fill_ of a slice": (
        lambda c, k, p, q, m, o: c[:, :, 5:7].masked_fill_(m[5:7, None], 1.5), ROWS + 2,
    ),
    "masked_scatter_ into a slice": (
        lambda c, k, p, q, m, o: c[:, :, 5:7].masked_scatter_(m[5:7, None], k), 2 * ROWS + 2,
    ),
    # The mask is one byte for each position; it is set at two.
    "rows by a mask": (
        lambda c, k, p, q, m, o: set_item(c, (ALL, ALL, m), k), ROWS + T,
    ),
}  # fmt: skip

#: What touches everything, though little changes: a kernel over all elements.
EVERYWHERE = {
    "masked_fill_": (lambda c, k, p, q, m, o: c.masked_fill_(m[:, None], 1.5), CACHE + T),
    "a number by a mask": (lambda c, k, p, q, m, o: set_item(c, (ALL, ALL, m), 1.5), CACHE + T + 4),
    "add_": (lambda c, k, p, *_: c.add_(1.5), CACHE),
}

#: The twins that give a new tensor: the cache is read, and written elsewhere.
COPIES = {
    "index_copy": (lambda c, k, p, *_: c.index_copy(2, p, k), CACHE + ROWS + WHERE),
    "index_put": (
        lambda c, k, p, *_: torch.ops.aten.index_put(c, (None, None, p), k), CACHE + ROWS + WHERE,
    ),
    "index_fill": (lambda c, k, p, *_: c.index_fill(2, p, 1.5), CACHE + WHERE),
    "scatter": (lambda c, k, p, *_: c.scatter(2, places(p), k), CACHE + ROWS + WHERE),
    "scatter_add": (lambda c, k, p, *_: c.scatter_add(2, places(p), k), CACHE + ROWS + WHERE),
    "slice_scatter": (lambda c, k, p, *_: c.slice_scatter(k, 2, 5, 7), CACHE + ROWS),
    "masked_fill": (lambda c, k, p, q, m, o: c.masked_fill(m[:, None], 1.5), CACHE + T),
}  # fmt: skip

#: Reads: what is taken, and its places.
TAKEN = {
    "index": (lambda c, k, p, *_: c[:, :, p], ROWS + WHERE),
    "index by two": (lambda c, k, p, q, *_: c[q, :, p], 2 * H * D * 4 + 2 * WHERE),
    "index_select": (lambda c, k, p, *_: c.index_select(2, p), ROWS + WHERE),
    "gather": (lambda c, k, p, *_: c.gather(2, places(p)), ROWS + WHERE),
    "take": (lambda c, k, p, *_: c.take(p), 2 * 4 + WHERE),
}


KINDS = {"writes": WRITES, "everywhere": EVERYWHERE, "copies": COPIES, "taken": TAKEN}
CASES = {name: case for kind in KINDS.values() for name, case in kind.items()}


def tensors(device="cpu"):
    """Keys, their positions, two sequences, a mask of two positions, and another cache."""
    keys = torch.arange(2.0, 2 + B * H * 2 * D, device=device).view(B, H, 2, D)
    where, which = (torch.tensor(at, device=device) for at in ([5, 6], [1, 0]))
    mask = torch.zeros(T, dtype=torch.bool, device=device)
    mask[5:7] = True
    return keys, where, which, mask, torch.full((B, H, T, D), 3.0, device=device)


def setup(mesh):
    device = mesh.device_type
    caches = [torch.zeros(B, H, T, D, device=device) for _ in CASES]
    return caches, *tensors(device)


@flint.capture(mesh=(2,), axes=("dp",), setup=setup)
def all_of_them(caches, *rest):
    made = [case[0](cache, *rest) for case, cache in zip(CASES.values(), caches, strict=True)]
    return [item for name, item in zip(CASES, made, strict=True) if name in (*COPIES, *TAKEN)]


@pytest.fixture(scope="module")
def workload():
    return all_of_them.capture()


def moved(graph):
    """(read, written, aliased) of each case: its one kernel, in the order of issue."""
    kernels = [node.work for node in graph if node.op.startswith("aten.")]
    assert len(kernels) == len(CASES)
    return {
        name: (work.read, work.written, work.aliased)
        for name, work in zip(CASES, kernels, strict=True)
    }


@pytest.mark.parametrize("name", WRITES)
def test_a_write_moves_what_it_touches(workload, name):
    write, read = WRITES[name]
    cache = torch.full((B, H, T, D), 0.5)
    before, memory = cache.clone(), cache.data_ptr()
    write(cache, *tensors())
    assert cache.data_ptr() == memory
    changed = int((cache != before).sum()) * 4
    found = moved(workload.programs[0].graph)[name]
    assert found[:2] == (read, changed)
    # Of a view, the rest of the view.
    assert found[2] in (0, CACHE - changed, CACHE // B - changed)


@pytest.mark.parametrize("name", EVERYWHERE)
def test_a_kernel_over_all_elements_moves_all(workload, name):
    assert moved(workload.programs[0].graph)[name] == (EVERYWHERE[name][1], CACHE, 0)


@pytest.mark.parametrize("name", COPIES)
def test_a_twin_that_gives_a_new_tensor_is_a_copy(workload, name):
    twin, read = COPIES[name]
    cache = torch.full((B, H, T, D), 0.5)
    assert twin(cache, *tensors()).data_ptr() != cache.data_ptr()
    assert moved(workload.programs[0].graph)[name] == (read, CACHE, 0)


@pytest.mark.parametrize("name", TAKEN)
def test_a_read_moves_what_it_takes(workload, name):
    take, read = TAKEN[name]
    taken = take(torch.zeros(B, H, T, D), *tensors()).nbytes
    assert moved(workload.programs[0].graph)[name] == (read, taken, 0)


@pytest.mark.parametrize("granularity", ["op", "kernel", "region"])
def test_merging_kernels_keeps_what_they_move(workload, granularity):
    graph = workload.programs[0].graph
    expected = [sum(column) for column in zip(*moved(graph).values(), strict=True)]
    merged = apply(graph, granularity)
    columns = (merged.bytes_read, merged.bytes_written, merged.bytes_aliased)
    assert [int(column.sum()) for column in columns] == expected


def test_a_saved_module_and_its_traces_say_the_same(workload, tmp_path):
    workload.save(tmp_path)
    [module] = (tmp_path / "programs").glob("*.mlirbc")
    expected = moved(workload.programs[0].graph)
    assert moved(flint.convert(module).programs[0].graph) == expected
    sizes = Counter(
        attr.uint64_val
        for node in read_nodes(tmp_path / "et" / "trace.0.et")
        for attr in node.attr
        if attr.name == "tensor_size" and attr.uint64_val > 1
    )
    assert sizes == Counter(read + written for read, written, _ in expected.values())


#: Writes that are scatters and updates when a compiler opens them.
OPENED = (
    "index_copy_", "index_copy_ in a layer", "index_copy_ through a transposed view",
    "slices and a tensor", "a layer, slices and a tensor", "index_put_ that adds", "index_fill_",
    "scatter_", "copy_ into a slice",
)  # fmt: skip


def test_a_compiler_that_opens_kernels_writes_in_place_too():
    """Also through views; and a twin that gives a new tensor copies the whole one."""

    def step(caches, *rest):
        writes = [WRITES[name][0] for name in OPENED]
        for write, cache in zip(writes, caches, strict=False):
            write(cache, *rest)
        return COPIES["index_copy"][0](caches[-1], *rest)

    capture = flint.capture(step, mesh=(1,), axes=("dp",), setup=setup)
    graph = apply(capture.capture(options={"fuse": True}).programs[0].graph, "kernel")
    large = [
        node
        for node in graph
        if node.op in ("scatter", "dynamic_update_slice", "copy") and node.work.written
    ]
    written = {"a layer, slices and a tensor": ROWS // B, "index_copy_ in a layer": ROWS // B}
    expected = Counter(written.get(name, ROWS) for name in OPENED)
    expected.update([CACHE, ROWS])
    assert Counter(node.work.written for node in large) == expected
    rest = [node.work.written for node in graph if node not in large]
    assert max(rest) < CACHE // B


def test_writes_in_place_need_no_memory(workload):
    """The inputs lie in memory; what is made are the new tensors of copies and reads."""
    program = workload.programs[0]
    made = len(COPIES) * CACHE + sum(moved(program.graph)[name][1] for name in TAKEN)
    assert peak_memory(program.graph, program.inputs).peak == made


#: 512 MiB, which no memory reads within 50 microseconds.
LARGE = (64, 8, 4096, 128)


def large(mesh):
    device = mesh.device_type
    cache = torch.zeros(LARGE, dtype=torch.bfloat16, device=device)
    key = torch.ones(64, 8, 1, 128, dtype=torch.bfloat16, device=device)
    return cache, key, torch.zeros(1, dtype=torch.int64, device=device)


@pytest.mark.parametrize(
    "write",
    [
        lambda cache, key, at: cache.index_copy_(2, at, key),
        lambda cache, key, at: set_item(cache, (ALL, ALL, at), key),
        lambda cache, key, at: cache[:, :, 7:8].copy_(key),
    ],
    ids=["StaticCache", "gpt-fast", "slice"],
)
def test_a_step_of_a_cache_takes_the_time_of_its_row(write):
    def step(cache, key, at):
        write(cache, key, at)

    workload = flint.capture(step, mesh=(1,), axes=("tp",), setup=large).capture()
    assert workload.simulate("dgx-h100").figures.step_seconds < 50e-6
