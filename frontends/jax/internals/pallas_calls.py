"""Kernels of Pallas, to which lowering attaches their cost.

The idea: a lowered kernel is a custom call whose code cannot be read here, but its equations and
its grid are available while it is lowered.  Their work is attached to the call as a frontend
attribute, which XLA's partitioner and compilers pass on; so is the author's own estimate, and what
the kernel sends to other devices.

    rules = rules(warnings, traced.jaxpr)     # for ``mlir.LoweringParameters``
"""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from jax._src.interpreters import mlir
from jaxlib.mlir import ir

from flint.capturing.user_frames import one_line
from flint.frontends.jax.kernels.arithmetic import element_type
from flint.frontends.jax.kernels.constants import Constant, constant_operands
from flint.frontends.jax.kernels.counting import Count, UnknownCountError, counted
from flint.frontends.jax.kernels.remote_copies import (
    Axes,
    UnknownTargetError,
    copies_to_others,
    exchanges_of,
)
from flint.stablehlo.read.attributes import entries
from flint.stablehlo.read.records import COST_ESTIMATE, FRONTEND_ATTRIBUTES, REMOTE_COPIES

_MODULE = "jax._src.pallas.pallas_call"
#: Since jax 0.10: kernels over cores.
_OVER_CORES = "jax._src.pallas.mpmd"
#: Since jax 0.11: what kernels for GPUs know of the GPU.
_GPU = "jax._src.pallas.triton.gpu_info"


def rules(warnings: dict[str, int], program: Any) -> tuple[tuple[Any, Any], ...]:
    """The ops and how they are lowered; none for a program that has not imported Pallas.

    Args:
        warnings: text -> count; what is assumed of a kernel is added.
        program: the equations that are lowered.
    """
    pallas: Any = sys.modules.get(_MODULE)
    over_cores: Any = sys.modules.get(_OVER_CORES)
    if pallas is None:
        return ()
    constants = constant_operands(program)

    def stated(lowered: Any, context: Any, values: Any, kernel: _Kernel) -> Any:
        call = None if kernel.interpret else _call_of(lowered, values)
        if call is None:
            return lowered
        estimate = _estimate(kernel, warnings)
        if estimate is not None:
            _attach(call, COST_ESTIMATE, json.dumps(estimate))
        sent = _sent(kernel, _axes_of(context), warnings)
        if sent is not None:
            _attach(call, REMOTE_COPIES, json.dumps(sent))
        return lowered

    def lower(context: Any, *values: Any, **parameters: Any) -> Any:
        lowered = pallas._pallas_call_lowering(context, *values, **parameters)
        kernel = _of_grid(parameters, constants.get(id(parameters["jaxpr"]), ()))
        return stated(lowered, context, values, kernel)

    def lower_over_cores(context: Any, *values: Any, **parameters: Any) -> Any:
        lowered = mlir._lowerings[over_cores.mpmd_map_p].rule(context, *values, **parameters)
        return stated(lowered, context, values, _of_cores(parameters, context.avals_in))

    found = [(pallas.pallas_call_p, lower)]
    if over_cores is not None:
        found.append((over_cores.mpmd_map_p, lower_over_cores))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class _Kernel:
    """What is lowered.

    Attributes:
        name: of its function.
        interpret: it is not a kernel, but interpreted.
        own: the cost that its author states, or None.
        types: of its arrays.
        bodies: equations, the grid that runs them, axes of the grid that they do not have, names of
            its axes if they have some, and the contents of the first references, if known.
    """

    name: str
    interpret: bool
    own: Any
    types: Sequence[Any]
    bodies: Sequence[
        tuple[Any, tuple[int, ...] | None, Collection[int], Sequence[Any], Sequence[Constant]]
    ]


def _of_grid(parameters: Any, constants: Sequence[Constant]) -> _Kernel:
    """A kernel over a grid: ``pallas_call``."""
    jaxpr, mapping = parameters["jaxpr"], parameters["grid_mapping"]
    grid = None if mapping.num_dynamic_grid_bounds else tuple(map(int, mapping.grid))
    held = constants[: mapping.num_index_operands]
    return _Kernel(
        str(parameters["name"] or jaxpr.debug_info.func_name),
        bool(parameters["interpret"]),
        parameters["cost_estimate"],
        [block.array_aval for block in mapping.block_mappings],
        [(jaxpr, grid, mapping.vmapped_dims, (), held)],
    )


def _of_cores(parameters: Any, types: Sequence[Any]) -> _Kernel:
    """Kernels over the cores or threads of a device: ``pl.kernel``, ``core_map``."""
    bodies = [
        (jaxpr, tuple(mesh.shape.values()), (), tuple(mesh.shape), ())
        for jaxpr, mesh in zip(parameters["jaxprs"], parameters["meshes"], strict=True)
    ]
    arrays = [getattr(one, "inner_aval", one) for one in (*types, *parameters["out_avals"])]
    return _Kernel(
        str(parameters["name"] or bodies[0][0].debug_info.func_name),
        bool(parameters["interpret"]),
        parameters["cost_estimate"],
        arrays,
        bodies,
    )


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


def _attach(call: Any, name: str, text: str) -> None:
    attached: dict[str, ir.Attribute] = {name: ir.StringAttr.get(text)}
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


def _estimate(kernel: _Kernel, warnings: dict[str, int]) -> dict[str, Any] | None:
    own = kernel.own
    if own is not None:
        stated = {"flops": int(own.flops), "transcendentals": int(own.transcendentals)}
        return stated | {"dtype": _floats(kernel.types)}
    try:
        count = _counted(kernel)
    except UnknownCountError as error:
        _warn(warnings, f"Pallas kernel {kernel.name}: FLOPs are not known: {error}")
        return None
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        # Equations are JAX's own and change with its versions.
        _warn(warnings, f"Pallas kernel {kernel.name}: FLOPs are not known: {one_line(error)}")
        return None
    for note in sorted(count.notes):
        _warn(warnings, f"Pallas kernel {kernel.name}: FLOPs are an upper bound: {note}")
    items = [[unit.name.lower(), dtype, flops] for (unit, dtype), flops in count.flops.items()]
    return {"items": items}


def _sent(kernel: _Kernel, axes: Axes, warnings: dict[str, int]) -> dict[str, Any] | None:
    """What a kernel sends to other devices; None if nothing, or if it cannot be followed."""
    if not any(any(copies_to_others(body[0])) for body in kernel.bodies):
        return None
    try:
        count = _counted(kernel, axes)
        if not count.copies:
            raise UnknownTargetError("its copies are not known" if axes else "it has no mesh")
        sent = exchanges_of(count.copies, axes)
    except (UnknownCountError, UnknownTargetError) as error:
        reason = str(error)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        reason = one_line(error)
    else:
        for note in sorted(count.notes):
            text = f"Pallas kernel {kernel.name}: what it sends is an upper bound: {note}"
            warnings[text] = warnings.get(text, 0) + 1
        return {"mesh": [size for _, size in axes], "sent": sent}
    text = (
        f"Pallas kernel {kernel.name} copies to other devices, and what it sends is not known: "
        f"{reason}. This communication is missing from the graph"
    )
    warnings[text] = warnings.get(text, 0) + 1
    return None


def _axes_of(context: Any) -> Axes:
    """The mesh around a kernel: names and sizes of its axes."""
    mesh = getattr(context.module_context.axis_context, "mesh", None)
    return () if mesh is None else tuple(mesh.shape.items())


def _floats(types: Sequence[Any]) -> str:
    """The element type of a kernel: that of its first array of floats, otherwise of any array."""
    names = [element_type(one) for one in types]
    return next((name for name in names if name[0] not in "iu"), names[0])


def _warn(warnings: dict[str, int], text: str) -> None:
    text += " (cost_estimate of pallas_call states them)"
    warnings[text] = warnings.get(text, 0) + 1


def _counted(kernel: _Kernel, devices: Axes = ()) -> Count:
    total = Count()
    for body, grid, mapped, named, held in kernel.bodies:
        if grid is None:
            raise UnknownCountError("a grid whose size depends on data")
        total.add(counted(body, grid, mapped, held, devices, named))
    return total
