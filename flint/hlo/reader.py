"""HLO protos -> op records: the same records that the MLIR reader makes of the same program.

The idea: one pass over the instructions of the computations that the entry reaches (``reading.py``)
gives the functions; the proto itself has the rest: devices, shardings, donated buffers, names.

    module = read_hlo(open("step.hlo.pb", "rb").read(), "step.hlo.pb")
    [op.name for op in module.functions["main"].ops]
"""

from __future__ import annotations

from typing import Any

from google.protobuf.message import DecodeError

from flint.errors import FlintError
from flint.hlo import asynchronous, structure
from flint.hlo import hlo_pb2 as pb
from flint.hlo.completeness import lost, remarks
from flint.hlo.describe import (
    devices_annotated,
    donated_buffers,
    donors,
    output_shardings,
    parameter_shardings,
)
from flint.hlo.messages import parse_module
from flint.hlo.reading import Handler, Reading, root_id
from flint.hlo.scope import Scope
from flint.hlo.shapes import Tree, flatten
from flint.hlo.sharding import declared_meshes
from flint.host.collection import uncollected
from flint.stablehlo.read.records import Module, is_sharded

#: Opcode -> reader of such instructions; the others have a row in ``opcodes.py``.
HANDLERS: dict[str, Handler] = structure.HANDLERS | asynchronous.HANDLERS

#: The suffix that XLA's partitioner gives to partitioned computations: the only mark of
#: partitioning that HLO text keeps.
_PARTITIONED = "_spmd"

#: The most characters of an error message.
MAX_MESSAGE = 500


@uncollected
def read_hlo(data: bytes, name: str = "<module>") -> Module:
    """Read a serialised ``HloProto`` or ``HloModuleProto`` into records.

    Args:
        data: the file's bytes.
        name: file name for errors.

    Raises:
        FlintError: not such a proto, cut off, or inconsistent.
    """
    try:
        proto = parse_module(data)
    except DecodeError as error:
        raise FlintError(f"{name}: not a complete HLO proto ({error})") from error
    try:
        return _module(proto, name)
    except FlintError as error:  # names come from the file, and may be anything in a damaged one
        raise FlintError(_one_line(str(error))) from error


def _one_line(text: str) -> str:
    return "".join([char if char.isprintable() else "?" for char in text[:MAX_MESSAGE]])


def _module(proto: pb.HloModuleProto, name: str) -> Module:
    reading = Reading(proto, name, HANDLERS)
    if not proto.computations:
        raise FlintError(f"{name}: an HLO module without computations (cut off?)")
    entry = reading.computations.get(proto.entry_computation_id)
    if entry is None or (proto.entry_computation_name or entry.name) != entry.name:
        raise FlintError(
            f"{name}: the entry computation {proto.entry_computation_name!r} is missing "
            "(file cut off?)"
        )
    scope = Scope()
    reading.entry(entry.id, scope)
    missing = lost(proto, reading.locations.numbers)
    if missing is not None:
        raise FlintError(f"{name}: the module lacks {missing} (file cut off?)")
    reading.warnings.update(remarks(proto))
    parameters = [scope.parameters[number] for number in sorted(scope.parameters)]
    root = scope.tree(root_id(entry))
    written = [item for item in entry.instructions if item.opcode == "parameter"]
    shardings = parameter_shardings(proto, written, parameters)
    outputs = output_shardings(proto, root)
    compiled = reading.scheduled or reading.optimized
    stated = bool(proto.spmd_parameters_shardings) or entry.name.endswith(_PARTITIONED)
    done = compiled or stated
    meshes = declared_meshes(proto)
    spread = 1 if done else devices_annotated(proto, meshes)
    annotated = spread > 1
    return Module(
        name=proto.name,
        functions=reading.functions,
        value_type=reading.value_type,
        types=reading.types.types,
        num_partitions=max(reading.partitions, spread),
        num_replicas=reading.replicas,
        meshes=meshes | {name: axes for axes, name in reading.context.meshes.items()},
        donated=donated_buffers(proto.input_output_alias, parameters, root),
        donors=donors(proto.buffer_donor, parameters),
        input_shardings=shardings,
        output_shardings=outputs,
        partitioned=done or not (annotated or any(map(is_sharded, (*shardings, *outputs)))),
        annotated=annotated,
        input_names=_input_names(reading, written, parameters),
        location=reading.locations,
        warnings=dict(reading.warnings),
        scheduled=reading.scheduled,
        optimized=reading.optimized,
    )


def _input_names(reading: Reading, written: list[Any], parameters: list[Tree]) -> tuple[str, ...]:
    places = {item.parameter_number: reading.location(item) for item in written}
    # All numbers must be assigned before the first lookup, which lists them.
    names = [reading.locations(places[number]).name for number in range(len(parameters))]
    return tuple(
        [
            name
            for name, tree in zip(names, parameters, strict=True)
            for _ in range(len(flatten(tree)))
        ]
    )
