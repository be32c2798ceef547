"""Kernels of Pallas, to which lowering attaches their cost.

The idea: a lowered kernel is a custom call whose code cannot be read here, but its equations and
its grid are available while it is lowered.  Their work is attached to the call as a frontend
attribute, which XLA's partitioner and compilers pass on; so is the author's own estimate.

    rule = rule(warnings, traced.jaxpr)       # for ``mlir.LoweringParameters``
"""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Sequence
from typing import Any

from jaxlib.mlir import ir

from flint.capturing.user_frames import one_line
from flint.frontends.jax.kernels.arithmetic import element_type
from flint.frontends.jax.kernels.constants import Constant, constant_operands
from flint.frontends.jax.kernels.counting import Count, UnknownCountError, counted
from flint.stablehlo.read.attributes import entries
from flint.stablehlo.read.records import COST_ESTIMATE, FRONTEND_ATTRIBUTES

_MODULE = "jax._src.pallas.pallas_call"
#: Since jax 0.11: what kernels for GPUs know of the GPU.
_GPU = "jax._src.pallas.triton.gpu_info"


def rule(warnings: dict[str, int], program: Any) -> tuple[Any, Any] | None:
    """The op and how it is lowered; None for a program that has not imported Pallas.

    Args:
        warnings: text -> count; what is assumed of a kernel is added.
        program: the equations that are lowered.
    """
    pallas = sys.modules.get(_MODULE)
    if pallas is None:
        return None
    constants = constant_operands(program)

    def lower(context: Any, *values: Any, **parameters: Any) -> Any:
        results = pallas._pallas_call_lowering(context, *values, **parameters)
        call = None if parameters["interpret"] else _call_of(results, values)
        estimate = None if call is None else _estimate(parameters, constants, warnings)
        if estimate is not None:
            _attach(call, json.dumps(estimate))
        return results

    return pallas.pallas_call_p, lower


def replacements(capability: tuple[int, int]) -> list[tuple[Any, str, Any]]:
    """The functions to replace in JAX: module, name, replacement.

    Args:
        capability: compute capability of the GPUs, major and minor.
    """
    if _MODULE not in sys.modules or importlib.util.find_spec(_GPU) is None:
        return []
    gpu: Any = importlib.import_module(_GPU)
    major, minor = capability
    info = gpu.GpuInfo(
        gpu_version=None, arch_name=f"{major}.{minor}", compute_capability=10 * major + minor
    )
    return [(gpu, "get_gpu_info", lambda: info)]


def _attach(call: Any, text: str) -> None:
    attached: dict[str, ir.Attribute] = {COST_ESTIMATE: ir.StringAttr.get(text)}
    if FRONTEND_ATTRIBUTES in call.attributes:
        kept = entries(call.attributes[FRONTEND_ATTRIBUTES])
        attached = {item.name: item.attr for item in kept} | attached
    call.attributes[FRONTEND_ATTRIBUTES] = ir.DictAttr.get(attached)


def _call_of(results: Any, values: Any) -> Any:
    """The custom call of results, which may have been converted since."""
    known = list(_flat(values))
    open_, seen = list(_flat(results)), 0
    while open_ and seen < 64:
        value, seen = open_.pop(), seen + 1
        if any(value == item for item in known) or isinstance(value.owner, ir.Block):
            continue
        if value.owner.name == "stablehlo.custom_call":
            return value.owner
        open_ += value.owner.operands
    return None


def _flat(values: Any) -> Any:
    for value in values:
        if isinstance(value, list | tuple):
            yield from _flat(value)
        else:
            yield value


def _estimate(
    parameters: Any, constants: dict[int, tuple[Constant, ...]], warnings: dict[str, int]
) -> dict[str, Any] | None:
    own = parameters["cost_estimate"]
    if own is not None:
        stated = {"flops": int(own.flops), "transcendentals": int(own.transcendentals)}
        return stated | {"dtype": _floats(parameters["grid_mapping"])}
    name = parameters["name"] or parameters["jaxpr"].debug_info.func_name
    try:
        count = _counted(parameters, constants.get(id(parameters["jaxpr"]), ()))
    except UnknownCountError as error:
        _warn(warnings, f"Pallas kernel {name}: FLOPs are not known: {error}")
        return None
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        # Equations are JAX's own and change with its versions.
        _warn(warnings, f"Pallas kernel {name}: FLOPs are not known: {one_line(error)}")
        return None
    for note in sorted(count.notes):
        _warn(warnings, f"Pallas kernel {name}: FLOPs are an upper bound: {note}")
    items = [[unit.name.lower(), dtype, flops] for (unit, dtype), flops in count.flops.items()]
    return {"items": items}


def _floats(mapping: Any) -> str:
    """The element type of a kernel: that of its first array of floats, otherwise of any array."""
    types = [element_type(block.array_aval) for block in mapping.block_mappings]
    return next((name for name in types if name[0] not in "iu"), types[0])


def _warn(warnings: dict[str, int], text: str) -> None:
    text += " (cost_estimate of pallas_call states them)"
    warnings[text] = warnings.get(text, 0) + 1


def _counted(parameters: Any, constants: Sequence[Constant]) -> Count:
    mapping = parameters["grid_mapping"]
    if mapping.num_dynamic_grid_bounds:
        raise UnknownCountError("a grid whose size depends on data")
    grid = tuple(map(int, mapping.grid))
    held = constants[: mapping.num_index_operands]
    return counted(parameters["jaxpr"], grid, mapping.vmapped_dims, held)
