"""A saved program in the form in which a backend's compiler takes what JAX lowers.

The idea: a compiler needs the global program and partitions it itself.  A saved module that is
annotated with shardings has this form.  One that is already per device, with its collectives
written out, becomes the body of a manual computation over all devices (``shard_map``): the devices
hold parts of each argument along the first dim, and the partitioner leaves the body unchanged.

    main(x: 4x2) per device of 8   ->   main(x: 32x2) { sdy.manual_computation(x) { program(x) } }

HLO becomes StableHLO first.  This runs in the compiler's or the partitioner's process.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from flint.errors import FlintError
from flint.frontends.jax.internals.modules import stablehlo_of
from flint.frontends.jax.lower.mlir_interface import interface_of
from flint.frontends.jax.requests import Compilation, Form
from flint.hlo import hlo_pb2 as pb
from flint.hlo.groups import groups_of_mesh
from flint.hlo.messages import parse_module
from flint.hlo.text import proto_of_text
from flint.stablehlo.collectives.world import World
from flint.stablehlo.read.bindings import ir, parse

_COPY: Final = "mhlo.copy"
_SHARDINGS: Final = ("sdy.sharding", "mhlo.sharding")
#: Names of the mesh and of the function that hold a per-device program.
_MESH, _PROGRAM = "flint_devices", "flint_program"


def lowered(request: Compilation) -> Compilation:
    """A request for a saved module in the form of one for a program that JAX has lowered.

    Args:
        request: its module in the form of ``form``, a saved one.

    Raises:
        FlintError: XLA does not turn the HLO into StableHLO, or the module has no ``main``.
    """
    module = parse(_mlir(request), "program")
    if "main" not in ir.SymbolTable(module.operation):
        raise FlintError("it has no function main, where XLA's compilers start")
    text = str(module)
    with module.context, ir.Location.unknown():
        _without_copies(module)
        if request.donors:
            _donate(module, request.donors)
        if request.per_device > 1:
            _without_shardings(module)
            _make_manual(module, request.per_device)
    interface = interface_of(module)
    return replace(
        request,
        module=_bytecode(module),
        shardy=request.per_device > 1 or "sdy." in text,
        inputs_free=interface.inputs_free,
        outputs_free=interface.outputs_free,
        parameters=len(interface.names),
        form=Form.LOWERED,
    )


def _mlir(request: Compilation) -> bytes:
    if request.form is Form.MLIR:
        return request.module
    data = proto_of_text(request.module) if request.form is Form.HLO_TEXT else request.module
    module = parse_module(data)
    if not module.device_assignment.computation_devices:
        # Counts alone, as of a text's header: XLA refuses them, and the request has them.
        module.ClearField("device_assignment")
    if request.per_device > 1:
        _write_groups_out(module, request.per_device)
    found = stablehlo_of(module.SerializeToString())
    if found is None and _lacks_values(module):
        raise FlintError(
            "its text leaves out large constants ({...}), which XLA needs: give the proto "
            "(.hlo.pb), or text with all values (--xla_dump_large_constants)"
        )
    if found is None:
        raise FlintError("XLA does not convert this HLO to StableHLO, which its compilers need")
    return found


def _lacks_values(module: pb.HloModuleProto) -> bool:
    return any(
        instruction.opcode == "constant" and not instruction.HasField("literal")
        for computation in module.computations
        for instruction in computation.instructions
    )


def _write_groups_out(module: pb.HloModuleProto, devices: int) -> None:
    """Write groups along a mesh's axes out: the mesh goes with the shardings."""
    for computation in module.computations:
        for instruction in computation.instructions:
            if not instruction.HasField("mesh_axes_replica_group_list"):
                continue
            written = groups_of_mesh(instruction.mesh_axes_replica_group_list)
            groups = World(devices).groups(written, instruction.opcode, channel=1, global_ids=True)
            instruction.ClearField("mesh_axes_replica_group_list")
            del instruction.replica_groups[:]
            for row in groups.table().tolist():
                instruction.replica_groups.add(replica_ids=[rank for rank in row if rank >= 0])


def _without_copies(module: Any) -> None:
    """Remove copies, which only name a value before a backend has chosen layouts."""
    copies: list[Any] = []

    def collect(op: Any) -> Any:
        if op.name == _COPY:
            copies.append(op)
        return ir.WalkResult.ADVANCE

    module.operation.walk(collect)
    for op in copies:
        op.results[0].replace_all_uses_with(op.operands[0])
        op.erase()


def _donate(module: Any, numbers: Sequence[int]) -> None:
    """Mark arguments of ``main`` as donors of their buffers, if they have no such mark."""
    main: Any = ir.SymbolTable(module.operation)["main"]
    count = len(ir.FunctionType(ir.TypeAttr(main.attributes["function_type"]).value).inputs)
    given = ir.ArrayAttr(main.attributes["arg_attrs"]) if "arg_attrs" in main.attributes else None
    attributes = [{} if given is None else _pairs(given[n]) for n in range(count)]
    for number in numbers:
        if "tf.aliasing_output" not in attributes[number]:
            attributes[number].setdefault("jax.buffer_donor", ir.BoolAttr.get(True))
    main.attributes["arg_attrs"] = ir.ArrayAttr.get([ir.DictAttr.get(it) for it in attributes])


def _pairs(item: Any) -> dict[str, Any]:
    entries: Any = ir.DictAttr(item)
    return {entry.name: entry.attr for entry in entries}


def _without_shardings(module: Any) -> None:
    """Remove the shardings of ops: the program has already been partitioned."""

    def strip(op: Any) -> Any:
        for name in _SHARDINGS:
            if name in op.attributes:
                del op.attributes[name]
        return ir.WalkResult.ADVANCE

    module.operation.walk(strip)
    for name in list(module.operation.attributes):
        if name.startswith("mhlo.spmd_"):
            del module.operation.attributes[name]


def _bytecode(module: Any) -> bytes:
    from io import BytesIO

    stream = BytesIO()
    module.operation.write_bytecode(file=stream)
    return stream.getvalue()


def _make_manual(module: Any, devices: int) -> None:
    """Put the program of one device into a computation over all of them."""
    table = ir.SymbolTable(module.operation)
    main = table["main"]
    kind = ir.FunctionType(ir.TypeAttr(main.attributes["function_type"]).value)
    arguments = _kept(main, "arg_attrs", len(kind.inputs))
    for name in ("arg_attrs", "res_attrs"):
        if name in main.attributes:
            del main.attributes[name]
    main.attributes["sym_name"] = ir.StringAttr.get(_PROGRAM)
    main.attributes["sym_visibility"] = ir.StringAttr.get("private")
    wide = [[_over_all(item, devices) for item in part] for part in (kind.inputs, kind.results)]
    local = [", ".join(map(str, part)) for part in (kind.inputs, kind.results)]
    given = ", ".join(
        f"%a{n}: {item}{found}"
        for n, (item, found) in enumerate(zip(wide[0], arguments, strict=True))
    )
    returned = ", ".join(wide[1])
    names = ", ".join(f"%a{n}" for n in range(len(kind.inputs)))
    inner = ", ".join(f"%b{n}: {item}" for n, item in enumerate(kind.inputs))
    passed = ", ".join(f"%b{n}" for n in range(len(kind.inputs)))
    shardings = [", ".join(map(_sharding, part)) for part in (kind.inputs, kind.results)]
    count = len(kind.results)
    text = f"""
      sdy.mesh @{_MESH} = <["device"={devices}]>
      func.func private @{_PROGRAM}({local[0]}) -> ({local[1]})
      func.func public @main({given}) -> ({returned}) {{
        %m:{count} = sdy.manual_computation({names}) in_shardings=[{shardings[0]}]
            out_shardings=[{shardings[1]}] manual_axes={{"device"}} ({inner}) {{
          %r:{count} = func.call @{_PROGRAM}({passed}) : ({local[0]}) -> ({local[1]})
          sdy.return {", ".join(f"%r#{n}" for n in range(count))} : {local[1]}
        }} : ({", ".join(wide[0])}) -> ({returned})
        return {", ".join(f"%m#{n}" for n in range(count))} : {returned}
      }}"""
    around = ir.Module.parse(text, module.context)
    for op in list(around.body.operations):
        name = ir.StringAttr(op.operation.attributes["sym_name"]).value
        if name != _PROGRAM:
            module.body.append(op.operation.detach_from_parent())


def _kept(main: Any, key: str, count: int) -> list[str]:
    """The attributes of each argument except its sharding, as text."""
    if key not in main.attributes:
        return [""] * count
    found = []
    for item in ir.ArrayAttr(main.attributes[key]):
        pairs = [
            f"{name} = {value}" for name, value in _pairs(item).items() if name not in _SHARDINGS
        ]
        found.append(f" {{{', '.join(pairs)}}}" if pairs else "")
    return found


def _over_all(kind: Any, devices: int) -> str:
    """The type of the parts of all devices together, along the first dim."""
    if not kind.shape:
        return str(kind)
    first, *rest = kind.shape
    dims = "x".join(map(str, (first * devices, *rest)))
    return f"tensor<{dims}x{kind.element_type}>"


def _sharding(kind: Any) -> str:
    dims = ['{"device"}', *["{}"] * (len(kind.shape) - 1)] if kind.shape else []
    return f"<@{_MESH}, [{', '.join(dims)}]>"
