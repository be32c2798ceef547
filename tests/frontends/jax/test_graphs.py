"""The contents of a captured graph: words of the mesh, layers, phases, lines, issue order,
levels.
"""

from __future__ import annotations

import math
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

import flint
from flint.errors import FlintError
from flint.graph.graph import Phase
from flint.graph.partners import partners
from flint.stablehlo.read.reader import read_mlir
from flint.workload.programs import Level
from tests.support.meshes import auto_mesh

HERE = Path(__file__).parent


def all_nodes(workload):
    return [node for graph, _ in workload.programs[0].graph.walk() for node in graph]


def communications(workload):
    return [node for node in all_nodes(workload) if node.communication]


@pytest.mark.parametrize("name", ["mlp", "scan", "four", "ring"])
def test_groups_have_the_names_of_the_users_axes(name, captured):
    workload = captured(name)
    axes = set(workload.mesh.axes)
    for node in communications(workload):
        words = partners(node.communication, workload.mesh)
        if words != "all ranks":
            words = words.split(" ")[0]
            assert set(words.split("+")) <= axes, words


def test_gradient_reductions_interleave_with_the_backward_pass(captured):
    """Each of the six layers' weight gradients is reduced before the next layer's is computed.

    The text of the partitioned module has all of them at the end.  Here: no two layers' reductions
    stand next to each other without a backward matrix product between them, except for the last.
    """
    graph = captured("unrolled").graph
    order = []
    for node in graph:
        if node.communication and math.prod(node.result_types[0].shape) >= 32 * 64:
            order.append("reduce")
        elif node.op == "dot_general" and node.source.phase is Phase.BACKWARD:
            order.append("product")
    assert order.count("reduce") == 12  # two matrices in each of six layers
    # Four backward products per layer (two gradients each), the first layer's input needs none.
    assert order.count("product") in (23, 24)
    runs = "".join("r" if item == "reduce" else "p" for item in order)
    longest = max(len(run) for run in runs.split("p"))
    assert longest <= 2, runs
    # A reduction stands at most three products behind the one that makes its operand.
    assert runs.index("r") <= 3, runs


def test_phases_come_from_the_name_stack(captured):
    nodes = all_nodes(captured("scan"))
    products = [node.source.phase for node in nodes if node.op == "dot_general"]
    # Per layer: 2 forward; both again when recomputed, unless XLA sees that the second's result
    # is not needed; 4 in the backward pass.
    assert products.count(Phase.FORWARD) == 2
    assert products.count(Phase.RECOMPUTE) in (1, 2)
    assert products.count(Phase.BACKWARD) == 4
    assert Phase.UNKNOWN not in products


def test_the_optimizer_is_what_uses_gradients_outside_of_differentiation(captured):
    nodes = all_nodes(captured("scan"))
    lines = {node.source.line for node in nodes if node.source.phase is Phase.OPTIMIZER}
    source = (HERE / "steps.py").read_text().splitlines()
    texts = [source[line - 1] for line in lines]
    assert texts
    assert all("0.9 * m + g" in text or "p - 0.1 * m" in text for text in texts), texts


def test_layers_are_the_users_scopes(captured):
    layers = {node.source.layer for node in all_nodes(captured("scan"))}
    assert {"norm", "mlp"} <= layers
    assert layers <= {"", "norm", "mlp"}


def test_every_product_has_the_users_source_line(captured):
    for name in ("mlp", "scan", "four"):
        for node in all_nodes(captured(name)):
            if node.op == "dot_general":
                assert node.source.file.endswith("steps.py")
                assert node.source.line > 0


def test_the_logical_level_has_global_shapes_and_shardings(steps):
    workload = steps.mlp.capture(level="logical")
    assert workload.level is Level.LOGICAL
    [program] = workload.programs
    assert [item.type.shape for item in program.inputs] == [(64, 128), (128, 64), (32, 64)]
    assert all('"data"' in item.sharding for item in program.inputs)
    assert communications(workload) == []
    # Two products forward, three backward (the batch needs no gradient), each 2 * 32 * 64 * 128.
    products = [node.work.flops for node in program.graph if node.op == "dot_general"]
    assert products == [2 * 32 * 64 * 128] * 5


def test_partitioned_and_logical_work_agree(steps, captured):
    """Every product of this step is shared out evenly over all eight devices."""
    flops = [
        sum(node.work.flops for node in workload.graph if node.op == "dot_general")
        for workload in (captured("mlp"), steps.mlp.capture(level="logical"))
    ]
    assert flops[0] * 8 == flops[1]


def test_a_saved_capture_loads_and_its_text_is_the_same_program(captured, tmp_path):
    import flint

    workload = captured("scan")
    workload.save(tmp_path / "out", ranks="0")
    loaded = flint.load(tmp_path / "out")
    assert loaded.programs[0].inputs == workload.programs[0].inputs
    text = (tmp_path / "out" / "programs" / "main.mlir").read_bytes()
    again = read_mlir(text)
    names = lambda module: sorted(op.name for op in module.functions["main"].ops)  # noqa: E731
    proto = flint.convert(tmp_path / "out" / "programs" / "main.hlo.pb", mesh=workload.mesh)
    both = flint.convert(tmp_path / "out" / "programs" / "main.mlir", mesh=workload.mesh)
    assert names(again)
    for other in (proto, both):
        assert np.array_equal(other.graph.flops_by_node(), workload.graph.flops_by_node())


def test_a_logical_capture_is_saved_without_traces(steps, tmp_path):
    import flint

    workload = steps.mlp.capture(level="logical")
    workload.save_programs(tmp_path / "out")
    assert flint.load(tmp_path / "out").level is Level.LOGICAL
    assert not (tmp_path / "out" / "et").exists()


@pytest.mark.parametrize("mesh", [(8,), (4, 2), (2, 2, 2), (2, 2, 2, 2), (3, 5), (64, 8), (4096,)])
def test_any_mesh(mesh):
    import jax
    import jax.numpy as jnp
    from jax.sharding import NamedSharding
    from jax.sharding import PartitionSpec as P

    import flint

    axes = tuple("abcd"[: len(mesh)])
    grid = auto_mesh(mesh, axes)
    size = math.prod(mesh)
    x = jax.ShapeDtypeStruct((size * 2, 16), jnp.float32, sharding=NamedSharding(grid, P(axes)))
    workload = flint.capture(lambda x: x.sum(), mesh=mesh, axes=axes).capture(x)
    [node] = communications(workload)
    assert workload.mesh.size == size
    assert node.communication.groups.size == size
    assert workload.programs[0].inputs[0].type.shape == (2, 16)


@pytest.mark.parametrize("name", ["mlp", "scan", "unrolled", "four", "ring"])
def test_every_node_has_a_line_of_the_users_file(name, captured):
    """Also those that XLA keeps no metadata of."""
    lines = len((HERE / "steps.py").read_text().splitlines())
    nodes = all_nodes(captured(name))
    without = [node.op for node in nodes if not node.source.file]
    # What nothing uses and nothing makes has no line to borrow.
    assert len(without) <= len(nodes) // 1000, without
    ours = [node for node in nodes if Path(node.source.file).name == "steps.py"]
    assert all(1 <= node.source.line <= lines for node in ours)
    assert len(ours) > len(nodes) // 2


def offloaded(x, w):
    return jax.device_put(x, jax.memory.Space.Host), x @ w


def held_by_the_host(x, w):
    return jax.device_put(x, jax.memory.Space.Device) @ w


@pytest.mark.parametrize(
    ("step", "kind", "copy"),
    [
        (offloaded, "device", "MoveToHost"),
        (held_by_the_host, "pinned_host", "MoveToDevice"),
        (jnp.matmul, "device", None),
    ],
)
@pytest.mark.parametrize("level", ["partitioned", "logical"])
def test_copies_to_and_from_the_host_are_ops(step, kind, copy, level):
    mesh = auto_mesh((8,), ("data",))
    sharding = NamedSharding(mesh, PartitionSpec("data"), memory_kind=kind)
    x = jax.ShapeDtypeStruct((64, 32), jnp.float32, sharding=sharding)
    w = jax.ShapeDtypeStruct((32, 32), jnp.float32)
    workload = flint.capture(step, mesh=(8,), axes=("data",)).capture(x, w, level=level)
    assert not any("host memory" in text for text in workload.warnings)
    found = [node.op for node in workload.graph if node.op.startswith("MoveTo")]
    assert found == ([copy] if copy else [])


def annotated_in_context(x):
    """As flax does it: an annotation is a constraint where a mesh is in context."""
    if not jax.sharding.get_abstract_mesh().empty:
        x = jax.lax.with_sharding_constraint(x, PartitionSpec(None, None, "data"))
    return x.sum()


def wrongly_constrained(x):
    return jax.lax.with_sharding_constraint(x, PartitionSpec(None, None, "data")).sum()


def rows_over_data():
    sharding = NamedSharding(auto_mesh((8,), ("data",)), PartitionSpec("data"))
    return jax.ShapeDtypeStruct((64, 32), jnp.float32, sharding=sharding)


def test_an_annotation_that_does_not_fit_in_context_is_left_as_a_run_without_context_leaves_it():
    step = flint.capture(annotated_in_context, mesh=(8,), axes=("data",))
    workload = step.capture(rows_over_data())
    assert [node.communication.kind for node in communications(workload)] == ["all_reduce"]
    assert sum("without a mesh in context" in text for text in workload.warnings) == 1


def test_a_constraint_that_never_fits_is_an_error_with_its_line():
    step = flint.capture(wrongly_constrained, mesh=(8,), axes=("data",))
    with pytest.raises(FlintError, match=r"test_graphs.py:\d+: .*rank at least 3"):
        step.capture(rows_over_data())
