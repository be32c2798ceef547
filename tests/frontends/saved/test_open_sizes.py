"""Programs exported for any size, with sizes stated, against the same program of fixed sizes."""

from collections import Counter
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from jax import export

import flint
from flint.errors import FlintError, UsageError

WEIGHTS = {name: jax.ShapeDtypeStruct((16, 16), jnp.float32) for name in "ab"}


def _loss(weights, x):
    hidden = jnp.tanh(x @ weights["a"]).reshape(-1, 16) @ weights["b"]
    hidden, _ = jax.lax.scan(lambda h, _: (jnp.sin(h), None), jax.nn.softmax(hidden), None, 3)
    return (hidden**2).sum() / x.shape[0] + jnp.arange(x.shape[1]).sum()


def _step(weights, x):
    return jax.tree.map(lambda w, g: w - 0.1 * g, weights, jax.grad(_loss)(weights, x))


def _saved(folder: Path, *sizes):
    """The step with ``x`` of these sizes (numbers or symbols) and 16 columns, as MLIR text."""
    given = jax.ShapeDtypeStruct((*sizes, 16), jnp.float32)
    path = folder / "step.mlir"
    path.write_text(str(export.export(jax.jit(_step))(WEIGHTS, given).mlir_module()))
    return path


def _work(workload):
    """Kernels with work, by op, FLOPs and bytes."""
    nodes = [node for node in workload.graph if node.flops]
    return sorted((node.op, node.flops, node.work.read, node.work.written) for node in nodes)


@pytest.mark.parametrize("sizes", [(8, 32), (5, 7)])
def test_stated_sizes_give_the_program_exported_for_them(tmp_path: Path, sizes) -> None:
    fixed = flint.convert(_saved(tmp_path, *sizes))
    path = _saved(tmp_path, *export.symbolic_shape("b, t"))
    stated = flint.convert(path, shapes={"2": (*sizes, 16)})
    # What was computed from a size remains: the mean's 1 / b is converted in the program.
    extra = Counter(_work(stated)) - Counter(_work(fixed))
    assert {op for op, *_ in extra} <= {"convert", "while"}
    assert not [op for op, *_ in Counter(_work(fixed)) - Counter(_work(stated)) if op != "while"]
    matmuls = [flops for op, flops, _, _ in _work(stated) if op == "dot_general"]
    # two products forward, two gradients of weights, one of the first product's result
    assert matmuls == [2 * sizes[0] * sizes[1] * 16 * 16] * 5


def test_open_sizes_that_are_not_stated_are_an_error_that_says_how(tmp_path: Path) -> None:
    path = _saved(tmp_path, *export.symbolic_shape("b, t"))
    with pytest.raises(FlintError, match=r"<\?x\?x16xf32> has a dim .* open: .*--shape"):
        flint.convert(path)


def test_sizes_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    path = _saved(tmp_path, *export.symbolic_shape("b, t"))
    with pytest.raises(UsageError, match=r"--shape 2=8x32x8: the argument is .*<\?x\?x16xf32>"):
        flint.convert(path, shapes={"2": (8, 32, 8)})
    with pytest.raises(UsageError, match=r"--shape 9: .*no such argument.*: 2 \(tensor"):
        flint.convert(path, shapes={"9": (8,)})


def test_what_the_export_requires_of_sizes_is_checked(tmp_path: Path) -> None:
    path = _saved(tmp_path, *export.symbolic_shape("2*b, t"))
    with pytest.raises(
        FlintError, match=r"do not fit; .* requires args\[1\].shape = \(2\*b, t, 16\)"
    ):
        flint.convert(path, shapes={"2": (7, 32, 16)})
    assert flint.convert(path, shapes={"2": (6, 32, 16)}).graph.flops_by_node().sum() > 0


def test_a_sharded_program_is_partitioned_for_its_stated_sizes(tmp_path: Path) -> None:
    path = tmp_path / "sharded.mlir"
    path.write_text("""module attributes {mhlo.num_partitions = 4 : i32} {
      sdy.mesh @mesh = <["d"=4]>
      func.func public @main(
          %w: tensor<16x32xf32>,
          %x: tensor<?x16xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"d"}, {}]>}
      ) -> tensor<16x32xf32> {
        %h = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
            : (tensor<?x16xf32>, tensor<16x32xf32>) -> tensor<?x32xf32>
        %g = stablehlo.dot_general %x, %h, contracting_dims = [0] x [0]
            : (tensor<?x16xf32>, tensor<?x32xf32>) -> tensor<16x32xf32>
        return %g : tensor<16x32xf32>
      }
    }""")
    workload = flint.convert(path, shapes={"1": (64, 16)})
    # 64 rows on 4 devices; the gradient of all devices is summed
    assert [node.flops for node in workload.graph if node.flops] == [2 * 16 * 16 * 32] * 2
    [sent] = workload.graph.tables.communications
    assert (sent.kind, sent.operand_bytes) == ("all_reduce", (16 * 32 * 4,))


def test_hlo_has_no_open_sizes(tmp_path: Path) -> None:
    path = tmp_path / "step.hlo"
    path.write_text("HloModule m\nENTRY e {\n ROOT p = f32[8] parameter(0)\n}\n")
    with pytest.raises(UsageError, match="--shape is for StableHLO"):
        flint.convert(path, shapes={"0": (8,)})
