"""Pallas kernels that copy to other devices: their messages, against XLA's permutes and by hand."""

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import flint

SHAPE = (8, 128)
#: 8 x 128 elements of 4 bytes.
BYTES = 4096


def copied(start, mesh, spec, grid=(), **more):
    """The graph of a step that runs a kernel whose code is ``start(source, target, sems)``."""

    def body(source, target, *sems):
        start(source, target, sems)

    def kernel(x):
        return pl.pallas_call(
            body,
            out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
            grid=grid,
            in_specs=[pl.BlockSpec(memory_space=pl.ANY)],
            out_specs=pl.BlockSpec(memory_space=pl.ANY),
            scratch_shapes=[pltpu.SemaphoreType.DMA] * 2,
            compiler_params=pltpu.CompilerParams(has_side_effects=True),
        )(x)

    return on_mesh(kernel, mesh, spec, **more)


def on_mesh(function, mesh, spec, *, after=lambda y: y):
    """The graph of a step that runs a function on each device's part."""
    rows = mesh.size * SHAPE[0]
    x = jax.ShapeDtypeStruct((rows, SHAPE[1]), jnp.float32, sharding=NamedSharding(mesh, spec))
    mapped = jax.shard_map(function, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False)
    step = flint.capture(lambda x: after(mapped(x)), mesh=mesh)
    workload = step.capture(x)
    [program] = workload.programs
    return program.graph, workload.warnings


def mesh_of(**axes):
    auto = (AxisType.Auto,) * len(axes)
    return jax.sharding.AbstractMesh(tuple(axes.values()), tuple(axes), axis_types=auto)


def send(source, target, sems, device, kind=pl.DeviceIdType.MESH):
    copy = pltpu.make_async_remote_copy(
        src_ref=source, dst_ref=target, send_sem=sems[0], recv_sem=sems[1], device_id=device,
        device_id_type=kind,
    )  # fmt: skip
    copy.start()
    copy.wait()


def messages(graph):
    """(target of each rank, bytes) of all permutes."""
    return [
        (node.communication.permutation.target.tolist(), node.communication.bytes_in)
        for node in graph
        if node.communication is not None
    ]


def test_a_kernel_that_sends_to_its_neighbour_sends_what_xlas_permute_sends():
    mesh = mesh_of(x=8)

    def to_the_right(source, target, sems):
        send(source, target, sems, (lax.rem(lax.axis_index("x") + 1, 8),))

    graph, _ = copied(to_the_right, mesh, P("x"))
    ring = [(rank, (rank + 1) % 8) for rank in range(8)]
    by_xla, _ = on_mesh(lambda x: lax.ppermute(x, "x", ring), mesh, P("x"))
    assert messages(graph) == messages(by_xla) == [([1, 2, 3, 4, 5, 6, 7, 0], BYTES)]


def test_a_branch_on_the_devices_place_leaves_out_those_that_do_not_send():
    mesh = mesh_of(x=8)

    def open_chain(source, target, sems):
        place = lax.axis_index("x")

        @pl.when(place < 7)
        def _():
            send(source, target, sems, (place + 1,))

    graph, _ = copied(open_chain, mesh, P("x"))
    chain = [(rank, rank + 1) for rank in range(7)]
    by_xla, _ = on_mesh(lambda x: lax.ppermute(x, "x", chain), mesh, P("x"))
    assert messages(graph) == messages(by_xla) == [([1, 2, 3, 4, 5, 6, 7, -1], BYTES)]


@pytest.mark.parametrize("kind", ["named", "places", "number"])
def test_a_device_on_a_mesh_of_two_axes_is_named_in_three_ways(kind):
    mesh = mesh_of(data=2, model=4)

    def down(source, target, sems):
        data, model = lax.axis_index("data"), lax.axis_index("model")
        left = lax.rem(model + 3, 4)
        device = {"named": {"model": left}, "places": (data, left), "number": data * 4 + left}[kind]
        number = pl.DeviceIdType.LOGICAL if kind == "number" else pl.DeviceIdType.MESH
        send(source, target, sems, device, number)

    graph, _ = copied(down, mesh, P(("data", "model")))
    ring = [(place, (place - 1) % 4) for place in range(4)]
    spec = P(("data", "model"))
    by_xla, _ = on_mesh(lambda x: lax.ppermute(x, "model", ring), mesh, spec)
    assert messages(graph) == messages(by_xla)


def test_copies_over_a_grid_and_a_loop_are_one_message_for_each_way():
    """3 points of the grid, with 2 rounds of the loop each, send 2 rows (2 x 128 x 4 = 1,024 bytes)
    to the right: 6 times; the first point sends all rows once to the left as well."""
    mesh = mesh_of(x=4)

    def both_ways(source, target, sems):
        place, point = lax.axis_index("x"), pl.program_id(0)

        @pl.loop(0, 2)
        def _(row):
            rows = pl.ds(row * 2, 2)
            send(source.at[rows], target.at[rows], sems, (lax.rem(place + 1, 4),))

        @pl.when(point == 0)
        def _():
            send(source, target, sems, (lax.rem(place + 3, 4),))

    graph, _ = copied(both_ways, mesh, P("x"), grid=(3,))
    assert sorted(messages(graph)) == [([1, 2, 3, 0], 6 * 1024), ([3, 0, 1, 2], BYTES)]


def test_every_other_device_gets_a_message_of_its_own():
    """The k-th point of the grid sends to the device k places on, as an all-to-all does."""
    mesh = mesh_of(x=4)

    def to_all(source, target, sems):
        device = lax.rem(lax.axis_index("x") + pl.program_id(0), 4)
        send(source.at[pl.ds(0, 2)], target.at[pl.ds(0, 2)], sems, (device,))

    graph, _ = copied(to_all, mesh, P("x"), grid=(4,))
    ways = [[(rank + step) % 4 for rank in range(4)] for step in (1, 2, 3)]
    assert sorted(messages(graph)) == sorted((way, 1024) for way in ways)


def test_what_follows_a_kernel_waits_for_its_messages():
    mesh = mesh_of(x=4)

    def to_the_right(source, target, sems):
        send(source, target, sems, (lax.rem(lax.axis_index("x") + 1, 4),))

    graph, _ = copied(to_the_right, mesh, P("x"), after=lambda y: jnp.sin(y))
    [message] = [number for number, node in enumerate(graph) if node.communication is not None]
    [sine] = [number for number, node in enumerate(graph) if node.op.startswith("sin")]
    reached, open_ = set(), [sine]
    while open_:
        before = graph.predecessors(open_.pop()) - reached
        reached |= before
        open_ += before
    assert message in reached


def test_a_target_that_depends_on_data_is_a_warning():
    mesh = mesh_of(x=4)

    def to_somewhere(source, target, sems):
        def read(seen):
            send(source, target, sems, (lax.rem(lax.axis_index("x") + seen[0], 4),))

        pl.run_scoped(read, pltpu.SMEM((1,), jnp.int32))

    graph, warnings = copied(to_somewhere, mesh, P("x"))
    assert messages(graph) == []
    [text] = [text for text in warnings if "copies to other devices" in text]
    assert "a copy to a device that depends on data" in text
    assert "missing from the graph" in text


def test_a_kernel_over_cores_sends_as_one_over_a_grid_does():
    mesh = mesh_of(x=4)

    def kernel(x):
        def body(source, target, *sems):
            send(source, target, sems, (lax.rem(lax.axis_index("x") + 1, 4),))

        return pl.kernel(
            body,
            jax.ShapeDtypeStruct(x.shape, x.dtype),
            mesh=pltpu.create_tensorcore_mesh("core", num_cores=1),
            scratch_types=[pltpu.SemaphoreType.DMA] * 2,
        )(x)

    graph, _ = on_mesh(kernel, mesh, P("x"))
    assert messages(graph) == [([1, 2, 3, 0], BYTES)]


def test_a_gpus_kernel_that_writes_to_all_others_is_a_warning():
    mesh = mesh_of(x=4)
    gpu = pytest.importorskip("jax.experimental.pallas.mosaic_gpu")

    def kernel(x):
        def body(source, target):
            gpu.multimem_store(source[...], target, "x")

        return gpu.kernel(body, out_type=jax.ShapeDtypeStruct((1024,), jnp.float32))(x)

    def first(x):
        return kernel(x.reshape(-1))

    _, warnings = on_mesh(first, mesh, P("x"))
    [text] = [text for text in warnings if "copies to other devices" in text]
    assert "missing from the graph" in text
