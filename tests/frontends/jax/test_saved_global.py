"""Saved programs whose shapes are global: XLA's partitioner makes the program of each device."""

from __future__ import annotations

import itertools
import re
from collections import Counter

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import NamedSharding, PartitionSpec

import flint
from flint.errors import FlintError, UsageError
from tests.frontends.jax import steps
from tests.support.command_line import flint_here
from tests.support.meshes import auto_mesh
from tests.support.shared import quick_rows

P = PartitionSpec


def lowered(step, *arguments, mesh):
    with jax.sharding.use_abstract_mesh(mesh):
        traced = (step if hasattr(step, "trace") else jax.jit(step)).trace(*arguments)
        return traced.lower(lowering_platforms=("cpu",))


def written(program, form, folder):
    """A lowered program as a file of that form."""
    data = {
        "mlir": lambda: program.as_text().encode(),
        "hlo": lambda: program.as_text(dialect="hlo").encode(),
        "hlo.pb": lambda: program.compiler_ir("hlo").as_serialized_hlo_module_proto(),
    }[form]()
    path = folder / f"step.{form}"
    path.write_bytes(data)
    return path


def work(workload):
    """(op, bytes, FLOPs, groups, runs) -> nodes that take time."""
    return Counter(
        (node.op, node.work.read, node.work.written, str(node.work.flops), groups(node), times)
        for program in workload.programs
        for graph, times in program.graph.walk()
        for node in graph
        if node.op not in ("reshape", "broadcast_in_dim")  # HLO has more of those, and no work
    )


def groups(node):
    exchange = node.communication
    if exchange is None or exchange.groups is None:
        return ""
    return str(exchange.groups.table().tolist())


@pytest.mark.parametrize("form", ["mlir", "hlo", "hlo.pb"])
@pytest.mark.parametrize(
    ("step", "setup"),
    quick_rows(
        [
            ("scan", "scan_setup"), ("mlp", "mlp_setup"), ("unrolled", "unrolled_setup"),
            ("ring", "ring_setup"), ("decompositions", "matrices_setup"),
        ],
        ("scan", "scan_setup"),
    ),
)  # fmt: skip
def test_a_saved_program_is_partitioned_as_the_captured_step(step, setup, form, tmp_path):
    captured = getattr(steps, step).capture()
    mesh = auto_mesh(captured.mesh.shape, captured.mesh.axes)
    arguments = getattr(steps, setup)(mesh)
    arguments = arguments if isinstance(arguments, tuple) else (arguments,)
    program = lowered(getattr(steps, step).__wrapped__, *arguments, mesh=mesh)
    workload = flint.convert(written(program, form, tmp_path))
    assert workload.mesh == captured.mesh
    assert work(workload) == work(captured)


@pytest.mark.parametrize(
    ("place", "form", "shardy"),
    quick_rows(
        itertools.product(("input", "result", "inside", "part"), ("mlir", "hlo"), (True, False)),
        ("input", "mlir", False), ("result", "hlo", True), ("inside", "mlir", True),
        ("part", "hlo", False), ("part", "mlir", True),
    ),
)  # fmt: skip
def test_it_is_global_wherever_shardings_are_written(place, form, shardy, tmp_path):
    """Data parallel on 4: each device has 8 of 32 rows, 2 x 8 x 64 x 64 FLOPs; the sum is reduced
    over 4 devices.  A program that was taken for that of a device has four times as many.
    """
    rows = NamedSharding(auto_mesh((4,), ("data",)), P("data"))
    whole = NamedSharding(rows.mesh, P())

    def step(w, x):
        if place == "inside":
            x = jax.lax.with_sharding_constraint(x, rows)
        y = x @ w
        if place == "part":
            y = jax.shard_map(jnp.tanh, mesh=rows.mesh, in_specs=P("data"), out_specs=P("data"))(y)
        return y if place == "result" else y.sum()

    options = {"input": {"in_shardings": (whole, rows)}, "result": {"out_shardings": rows}}
    arguments = tuple(jax.ShapeDtypeStruct(shape, "float32") for shape in ((64, 64), (32, 64)))
    with _partitioner(shardy):
        program = lowered(jax.jit(step, **options.get(place, {})), *arguments, mesh=rows.mesh)
        path = written(program, form, tmp_path)
    workload = flint.convert(path)
    [product] = [node for node in workload.graph if node.op == "dot_general"]
    assert product.work.flops == 2 * 8 * 64 * 64
    reduced = [groups(node) for node in workload.graph if node.communication is not None]
    assert reduced == ([] if place == "result" else ["[[0, 1, 2, 3]]"])
    assert flint.convert(path, level="logical").level == "logical"


def test_text_whose_header_states_partitions_is_partitioned(tmp_path):
    """XLA's dumps state them, what JAX writes does not."""
    mesh = auto_mesh((4, 2), ("data", "model"))
    program = lowered(steps.mlp.__wrapped__, *steps.mlp_setup(mesh), mesh=mesh)
    path = written(program, "hlo", tmp_path)
    plain = flint.convert(path)
    head, line, rest = path.read_text().partition("\n")
    path.write_text(f"{head}, num_partitions=8{line}{rest}")
    assert work(flint.convert(path)) == work(plain)


def test_text_that_leaves_constants_out_is_an_error_that_says_so(tmp_path):
    rows = NamedSharding(auto_mesh((4,), ("data",)), P("data"))
    program = lowered(
        jax.jit(lambda x: x * jnp.arange(32.0), in_shardings=rows),
        jax.ShapeDtypeStruct((32, 32), "float32"), mesh=rows.mesh,
    )  # fmt: skip
    path = written(program, "hlo", tmp_path)
    whole = path.read_text()
    assert "iota" in whole
    path.write_text(re.sub(r"iota\(\), iota_dimension=0", "constant({...})", whole))
    with pytest.raises(FlintError, match="leaves out large constants"):
        flint.convert(path)


class _partitioner:
    """Shardy, or GSPMD, for what is lowered within."""

    def __init__(self, shardy):
        self.shardy, self.before = shardy, jax.config.jax_use_shardy_partitioner

    def __enter__(self):
        jax.config.update("jax_use_shardy_partitioner", self.shardy)

    def __exit__(self, *_):
        jax.config.update("jax_use_shardy_partitioner", self.before)


def test_the_command_line_partitions_by_itself_and_not_if_told(tmp_path):
    mesh = auto_mesh((4, 2), ("data", "model"))
    program = lowered(steps.mlp.__wrapped__, *steps.mlp_setup(mesh), mesh=mesh)
    path = written(program, "mlir", tmp_path)
    done = flint_here("convert", path, "-o", tmp_path / "out", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert work(flint.load(tmp_path / "out")) == work(flint.convert(path))
    told = flint_here("convert", path, "-o", "told", "--level", "logical", cwd=tmp_path)
    assert told.returncode == 2 and "not partitioned" in told.stderr
    entry = flint_here("convert", path, "-o", "told", "--replicas", cwd=tmp_path)
    assert entry.returncode == 2 and "for programs of one device" in entry.stderr


def test_the_program_of_a_device_stays_as_it_is(tmp_path):
    data, suffix = steps.mlp.capture().programs[0].module
    path = tmp_path / f"device{suffix}"
    path.write_bytes(data)
    for level in ("partitioned", "logical"):
        assert flint.convert(path, level=level).programs[0].module == (data, suffix)


def test_level_auto_without_a_compiler_partitions(monkeypatch, tmp_path):
    monkeypatch.setattr("flint.capturing.targets.obstacle", lambda *_: "there is no compiler")
    mesh = auto_mesh((4, 2), ("data", "model"))
    program = lowered(steps.mlp.__wrapped__, *steps.mlp_setup(mesh), mesh=mesh)
    workload = flint.convert(written(program, "mlir", tmp_path), level="auto", target="h100")
    assert "level auto: partitioned, because there is no compiler" in workload.warnings
    assert work(workload) == work(steps.mlp.capture())


RULED = """
module @ruled attributes {mhlo.num_partitions = 4 : i32, mhlo.num_replicas = 1 : i32} {
  sdy.mesh @mesh = <["data"=4]>
  func.func public @main(
      %x: tensor<8x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"data"}, {}]>}
  ) -> tensor<8x4xf32> {
    %y = stablehlo.custom_call @CustomSPMDPartitioning(%x) {backend_config = "4711"}
        : (tensor<8x4xf32>) -> tensor<8x4xf32>
    return %y : tensor<8x4xf32>
  }
}
"""


def test_a_rule_in_python_that_a_file_does_not_contain_is_an_error(tmp_path):
    path = tmp_path / "ruled.mlir"
    path.write_text(RULED)
    with pytest.raises(FlintError, match=r"partitioning rule in Python .*: capture the step"):
        flint.convert(path)


def test_a_mesh_of_another_size_is_refused(tmp_path):
    mesh = auto_mesh((4, 2), ("data", "model"))
    program = lowered(steps.mlp.__wrapped__, *steps.mlp_setup(mesh), mesh=mesh)
    with pytest.raises(UsageError, match="8"):
        flint.convert(written(program, "mlir", tmp_path), mesh=(4,))
