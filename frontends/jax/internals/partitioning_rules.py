"""Ops with a partitioning rule in Python (``custom_partitioning``, cuDNN's attention): no GPUs.

The idea: XLA's partitioner calls such an op's own Python function for the computation of each
device.  Those functions are the user's, in this process, and the partitioner runs in a child: it
asks through a file, and JAX's own code answers here.  JAX requires a mesh of real devices for such
ops, and cuDNN's version, both only for a later run.

    answer(question)    # while the partitioner runs; its form: questions.py
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

from jax._src import core, custom_partitioning, sharding_impls
from jax._src.cudnn import fused_attention_stablehlo as cudnn
from jax._src.custom_partitioning_sharding_rule import (
    SdyShardingRule,
    sdy_sharding_rule_to_mlir,
    str_to_sdy_sharding_rule,
)
from jax._src.interpreters import mlir
from jax.sharding import AbstractMesh, NamedSharding, PartitionSpec
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from flint.frontends.jax.internals import questions
from flint.frontends.jax.platforms import PLATFORMS, on_first

#: The version of cuDNN that JAX sees: 9.13, which has every layout and mask.
CUDNN_VERSION = 91300
#: The op that ``custom_partitioning`` makes.
PARTITIONED = custom_partitioning.custom_partitioning_p
#: Ops of JAX that wrap such an op, by the beginning of their names.
_WRAPPED = ("dot_product_attention", "scaled_matmul")
#: Objects that JAX's callbacks reference weakly; a capture's stay until the next capture.
_kept: list[Any] = []


def lowering(mesh: AbstractMesh | None) -> Callable[..., Any]:
    """How JAX lowers an op with a partitioning rule, for ``abstract_devices``'s mesh."""

    def lower(ctx: Any, *values: Any, **known: Any) -> Any:
        context = ctx.module_context.axis_context
        sharded = isinstance(context, sharding_impls.ShardingContext)
        if not sharded or context.device_assignment is not None:
            return _original(ctx, *values, **known)
        if mesh is None or mesh.size == 1:
            whole = mlir.lower_fun(core.jaxpr_as_fun(known["call"]), multiple_results=True)
            return whole(ctx, *values)
        return _lowered(mesh, ctx, values, known)

    return lower


def replacements(capability: tuple[int, int]) -> list[tuple[Any, str, Any]]:
    """The functions to replace in JAX: module, name, replacement.

    Args:
        capability: compute capability of the GPUs, major and minor.
    """
    return [
        (cudnn, "check_cudnn_version", lambda: CUDNN_VERSION),
        (cudnn, "check_compute_capability", lambda least: _numbers(least) <= capability),
        (cudnn, "is_cuda_compute_capability_equal", lambda exact: _numbers(exact) == capability),
    ]


def answer_for(capability: tuple[int, int]) -> None:
    """Make JAX find cuDNN and GPUs of a compute capability from now on."""
    for module, name, answer in replacements(capability):
        setattr(module, name, answer)


def has_rule(primitive: Any) -> bool:
    """Whether an op has a partitioning rule in Python."""
    return primitive is PARTITIONED or str(primitive.name).startswith(_WRAPPED)


def forget() -> None:
    """Drop the rules of the capture before."""
    _kept.clear()


def _numbers(capability: str) -> tuple[int, ...]:
    return tuple(int(part) for part in capability.split("."))


_original: Any = custom_partitioning._custom_partitioning_lowering_rule


def _lowered(mesh: AbstractMesh, ctx: Any, values: Any, known: Mapping[str, Any]) -> Any:
    """The result of JAX's own rule for a mesh of devices, for an abstract mesh."""

    def to_sharding(sharding: Any, dims: int) -> Any:
        if sharding is None:
            return None
        (spec, *_) = sharding_impls.parse_flatten_op_sharding(sharding, mesh)
        partition_spec: Any = PartitionSpec  # untyped
        return NamedSharding(mesh, partition_spec(*spec, *((None,) * (dims - len(spec)))))

    callbacks: Any = custom_partitioning  # untyped
    info = callbacks._ShardingCallbackInfo(
        known["propagate_user_sharding"], known["partition"], to_sharding, known["in_tree"],
        known["out_tree"], known["infer_sharding_from_operands"],
        SimpleNamespace(platforms=ctx.module_context.platforms, backend=None), mesh,
        known["static_args"],
    )  # fmt: skip
    key = str(id(info))
    callbacks._sharding_callbacks[key.encode()] = info
    _kept.append(info)
    call = known["call"]
    types, values_types = (_types(ctx, avals) for avals in (call.out_avals, call.in_avals))
    made = stablehlo.CustomCallOp(
        types,
        list(values),
        call_target_name=ir.StringAttr.get(questions.TARGET),
        has_side_effect=ir.BoolAttr.get(False),
        api_version=ir.IntegerAttr.get(ir.IntegerType.get_signless(32), 2),
        called_computations=ir.ArrayAttr.get([]),
        backend_config=ir.StringAttr.get(key),
    )
    rule = known["sharding_rule"]
    if rule is not None:
        rule = _sharding_rule(rule, known["static_args"], mesh, values_types, types)
        made.attributes["sdy.sharding_rule"] = sdy_sharding_rule_to_mlir(rule, values_types, types)
    return made.results


def _types(ctx: Any, avals: Any) -> Any:
    if hasattr(mlir, "ir_tree_registry"):
        found = [mlir.aval_to_ir_types(ctx.module_context, item) for item in avals]
        return mlir.ir_tree_registry.flatten(found)[0]
    older: Any = mlir  # jax 0.8
    return older.flatten_ir_types([older.aval_to_ir_type(item) for item in avals])


def _sharding_rule(rule: Any, static: Any, mesh: Any, operands: Any, results: Any) -> Any:
    """A rule for Shardy, as JAX makes it from the arguments of ``def_partition``."""
    if not callable(rule) or isinstance(rule, SdyShardingRule):
        return rule
    made = rule(*static, mesh, operands, results)
    more: dict[str, Any] = {}
    if isinstance(made, list | tuple) and len(made) == 2:
        made, more = made
    return str_to_sdy_sharding_rule(made, **more) if isinstance(made, str) else made


def answer(question: bytes) -> bytes:
    """Ask an op's partitioning rule.

    Args:
        question: from the partitioner's process.

    Raises:
        Exception: any error of the user's function.
    """
    kind, key, shapes, shardings = questions.read_question(question)
    function = {
        "partition": custom_partitioning._custom_partitioning_partition,
        "infer": custom_partitioning._custom_partitioning_infer_sharding_from_operands,
        "propagate": custom_partitioning._custom_partitioning_propagate_user_sharding,
    }[kind]
    info: Any = custom_partitioning._sharding_callbacks.get(key)
    if info is None:
        raise KeyError("a partitioning rule that is not this capture's")
    lowered_for: tuple[str, ...] = info.module_context.platforms

    def attempt(platform: str) -> bytes:
        info.module_context.platforms = (platform,)
        return _answer(kind, function, key, shapes, shardings)

    # A program for a target is for its platform; others may contain kernels of any platform.
    anywhere = lowered_for == PLATFORMS[:1]
    return on_first(PLATFORMS if anywhere else lowered_for, attempt)[0]


def _answer(kind: str, function: Any, key: bytes, shapes: list[Any], shardings: list[Any]) -> bytes:
    with core.eval_context():
        if kind == "partition":
            *operands, result = shapes
            *given, wanted = shardings
            module, arguments, results = function(operands, given, result, wanted, key)
            return questions.write_answer([*arguments, results], module)
        if kind == "infer":
            *operands, result = shapes
            return questions.write_answer([function(operands, shardings, result, key)])
        return questions.write_answer([function(shardings[0], shapes[0], key)])
