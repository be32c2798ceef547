"""Every op that can stand in a module has a rule."""

import importlib

import jax
import pytest

import flint
from flint.graph.tensor_types import tensor_type
from flint.graph.work import Role
from flint.stablehlo.read.records import Block, Op
from flint.stablehlo.rules import RULES, flops_known, is_known_custom_call, rule_for, work_of


def _operation_names(dialect: str) -> list[str]:
    generated = importlib.import_module(f"jaxlib.mlir.dialects._{dialect}_ops_gen")
    found = {
        value.OPERATION_NAME
        for value in vars(generated).values()
        if isinstance(value, type) and hasattr(value, "OPERATION_NAME")
    }
    return sorted(found)


@pytest.mark.parametrize(
    ("dialect", "at_least"), [("stablehlo", 117), ("chlo", 51), ("mhlo", 138), ("sdy", 19)]
)
def test_every_op_of_the_dialect_has_a_rule(dialect: str, at_least: int) -> None:
    names = _operation_names(dialect)
    assert len(names) >= at_least
    missing = [name for name in names if name.removeprefix("stablehlo.") not in RULES]
    assert not missing


def test_every_name_that_the_hlo_reader_gives_has_a_rule() -> None:
    opcodes = importlib.import_module("flint.hlo.opcodes")
    missing = {row.name for row in opcodes.ROWS.values()} - RULES.keys()
    assert not missing


def test_every_rule_names_an_op_that_exists() -> None:
    existing = {
        name for dialect in ("stablehlo", "chlo", "sdy") for name in _operation_names(dialect)
    }
    ours = {name if "." in name else f"stablehlo.{name}" for name in RULES}
    of_other_dialects = {
        "builtin.unrealized_conversion_cast",
        "func.call",
        "func.return",
        "tensor.cast",
    }
    given_by_readers = {"stablehlo.call", "stablehlo.fusion"}
    unknown = ours - existing - of_other_dialects - given_by_readers
    assert {name for name in unknown if not name.startswith("mhlo.")} == set()


def test_every_registered_lapack_target_of_jaxlib_is_known() -> None:
    lapack = importlib.import_module("jaxlib.lapack")
    registrations = lapack.registrations()["cpu"]
    names = [entry[0] for entry in registrations]
    assert names
    assert [name for name in names if not is_known_custom_call(name)] == []


@pytest.mark.parametrize(
    ("target", "role"),
    [
        ("Sharding", Role.ALIAS),
        ("SPMDFullToShardShape", Role.ALIAS),
        ("SPMDShardToFullShape", Role.ALIAS),
        ("annotate_device_placement", Role.ALIAS),
        ("xla.sdy.FuncResultSharding", Role.ALIAS),
        ("xla.sdy.GlobalToLocalShape", Role.ALIAS),
        ("AllocateBuffer", Role.GENERATE),
        ("PrepareAsyncCallStart", Role.GENERATE),
        ("PrepareAsyncCallDone", Role.ALIAS),
        ("MoveToHost", Role.OPAQUE),
        ("ragged_all_to_all", Role.COLLECTIVE),
        ("TopK", Role.OPAQUE),
        ("mhlo.topk", Role.OPAQUE),
        ("mhlo.erf", Role.ELEMENTWISE),
        ("__cublas$gemm", Role.OPAQUE),
        ("__cublas$lt$matmul$f8", Role.OPAQUE),
        ("__cudnn$fmhaSoftmaxBackward", Role.OPAQUE),
        ("cusolver_potrf_ffi", Role.OPAQUE),
        ("tpu_custom_call", Role.OPAQUE),
        ("triton_kernel_call", Role.OPAQUE),
    ],
)
def test_custom_call_target_has_its_role(target: str, role: Role) -> None:
    rule, known = rule_for(Op("custom_call", (), (), {"target": target}))
    assert known
    assert rule.role == role
    assert not rule.types_only


@pytest.mark.parametrize(
    "op",
    [Op("custom_call", (0,), (1,), {"target": "my_kernel"}), Op("other.op", (0,), (1,))],
    ids=["custom call", "op"],
)
def test_unknown_op_is_one_kernel_with_boundary_bytes_and_reports_it(op: Op) -> None:
    ins, outs = [tensor_type((8, 4), "f32")], [tensor_type((8,), "f32")]
    rule, known = rule_for(op)
    assert not known
    assert rule.role == Role.OPAQUE
    work = work_of(op, ins, outs)
    assert (work.items, work.read, work.written) == ((), 128, 32)
    assert not flops_known(op, ins, outs)


def test_rules_that_read_attributes_or_regions_are_not_cached_by_types() -> None:
    reading = (
        "dot_general convolution reduce reduce_window scatter select_and_scatter map fft transpose "
        "einsum custom_call composite chlo.ragged_dot chlo.scan"
    )
    assert [name for name in reading.split() if RULES[name].types_only] == []


def test_scan_applies_its_body_to_every_element() -> None:
    # 8 steps along the first dim of [8, 4]; the body adds slices of 4 elements
    body = Block((3, 4), [Op("add", (3, 4), (5,))], (5, 5))
    op = Op("chlo.scan", (0, 1), (2,), {"dimension": 0}, (body,))
    work = work_of(op, [tensor_type((8, 4), "f32"), tensor_type((4,), "f32")], [])
    assert work.flops == 8 * 4


def test_a_reduction_of_several_operands_works_in_the_type_of_each() -> None:
    """jax.numpy.argmax of 1,000 f32: 3 comparisons and 1 choice of values, 1 of each of places, and
    3 operations on predicates, for each of 999 pairs."""
    graph = (
        flint.capture(mesh=(1,))(lambda x: jax.numpy.argmax(x))
        .capture(jax.ShapeDtypeStruct((1000,), "float32"))
        .graph
    )
    [reduction] = [node for node in graph if node.role == Role.REDUCTION]
    counts = {item.dtype: item.flops for item in reduction.work.items}
    assert counts == {"f32": 4 * 999, "i32": 2 * 999, "i1": 3 * 999}
