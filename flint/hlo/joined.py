"""Several modules that run one after another, as one.

The idea: the computations of all modules stand side by side, with numbers and names of their own;
one entry has the instructions of all entries, one after the other.  What modules keep in tables
(stack frames, payloads) is written into the instructions first, because each module has its own.

    whole = joined([first, second])
    named(1, "fusion.3")                    # "fusion.3.1": that of the second module
"""

from __future__ import annotations

from collections.abc import Sequence

from flint.hlo import hlo_pb2 as pb
from flint.hlo.locations import Locations, resolve_payload

#: XLA's number of a tuple among element types.
_TUPLE = 13


def named(part: int, name: str) -> str:
    """What an instruction or a computation of a module is called in the joined one."""
    return f"{name}.{part}"  # what is before the first dot names the op


def joined(modules: Sequence[pb.HloModuleProto]) -> pb.HloModuleProto:
    """One module that runs some modules of the same devices in their order.

    Values pass through no module's end: each has its own parameters and results.

    Args:
        modules: at least one; they are not changed.
    """
    whole = pb.HloModuleProto(name="+".join(dict.fromkeys(module.name for module in modules)))
    for field in ("device_assignment", "frontend_attributes"):  # of all, or it is not whole
        if all(module.HasField(field) for module in modules):
            getattr(whole, field).CopyFrom(getattr(modules[0], field))
    # Whether a module is partitioned stands in its entry's name.
    entry = pb.HloComputationProto(name=modules[0].entry_computation_name)
    results: list[pb.HloInstructionProto] = []
    order: list[int] = []
    scheduled = all(module.entry_computation_id in module.schedule.sequences for module in modules)
    last = 0
    for part, module in enumerate(modules):
        moved, last = _moved(module, part, last)
        [own] = [c for c in moved.computations if c.id == moved.entry_computation_id]
        parameters = len(whole.host_program_shape.parameters)
        for instruction in own.instructions:
            if instruction.opcode == "parameter":
                instruction.parameter_number += parameters
        results.append(_result(own))
        entry.instructions.extend(own.instructions)
        whole.computations.extend(c for c in moved.computations if c.id != own.id)
        _bounds(whole, moved, parameters, part)
        if scheduled:
            order += moved.schedule.sequences.pop(own.id).instruction_ids
            for number, sequence in moved.schedule.sequences.items():
                whole.schedule.sequences[number].CopyFrom(sequence)
    root = _tuple(results, last + 1)
    entry.instructions.append(root)
    entry.root_id, entry.id = root.id, last + 2
    whole.computations.append(entry)
    whole.entry_computation_id, whole.entry_computation_name = entry.id, entry.name
    whole.host_program_shape.result.ParseFromString(root.shape)
    if scheduled:
        whole.schedule.sequences[entry.id].instruction_ids.extend([*order, root.id])
    return whole


def _moved(module: pb.HloModuleProto, part: int, last: int) -> tuple[pb.HloModuleProto, int]:
    """A copy with numbers above ``last`` and names of its own; and the largest number in it."""
    moved = pb.HloModuleProto()
    moved.CopyFrom(module)
    payloads = tuple(module.payloads)
    locations = Locations(module.stack_frame_index, payloads)
    # Computations and instructions are numbered apart; a common shift keeps both distinct.
    numbers = [last]
    for computation in moved.computations:
        computation.name = named(part, computation.name)
        computation.id += last
        computation.root_id += last if computation.root_id else 0
        numbers.append(computation.id)
        for item in computation.instructions:
            item.name = named(part, item.name)
            item.id += last
            numbers.append(item.id)
            for references in (
                item.operand_ids, item.control_predecessor_ids, item.called_computation_ids
            ):  # fmt: skip
                references[:] = [number + last for number in references]
            if item.metadata:
                number = locations.numbers.setdefault(item.metadata, len(locations.numbers))
                place = locations(number)
                item.metadata = pb.OpMetadata(
                    op_name=place.name, source_file=place.file, source_line=place.line
                ).SerializeToString()
            if item.backend_config_payload:
                payload = pb.Payload.FromString(item.backend_config_payload)
                item.backend_config = resolve_payload(payload, payloads)
                item.ClearField("backend_config_payload")
    moved.entry_computation_id += last
    moved.ClearField("schedule")
    for number, sequence in module.schedule.sequences.items():
        ids = [one + last for one in sequence.instruction_ids]
        moved.schedule.sequences[number + last].instruction_ids.extend(ids)
    return moved, max(numbers)


def _result(entry: pb.HloComputationProto) -> pb.HloInstructionProto:
    """The instruction whose value an entry returns."""
    found = [item for item in entry.instructions if item.id == entry.root_id]
    return found[0] if found else entry.instructions[-1]


def _tuple(values: Sequence[pb.HloInstructionProto], number: int) -> pb.HloInstructionProto:
    shapes = [pb.ShapeProto.FromString(value.shape) for value in values]
    shape = pb.ShapeProto(element_type=_TUPLE, tuple_shapes=shapes)
    return pb.HloInstructionProto(
        name=named(len(values), "results"),
        opcode="tuple",
        shape=shape.SerializeToString(),
        id=number,
        operand_ids=[value.id for value in values],
    )


def _bounds(whole: pb.HloModuleProto, moved: pb.HloModuleProto, parameters: int, part: int) -> None:
    """Add what a module says of its parameters and results, behind so many parameters."""
    whole.host_program_shape.parameters.extend(moved.host_program_shape.parameters)
    for alias in moved.input_output_alias.entries:
        alias.parameter_number += parameters
        alias.output_shape_index[:] = [part, *alias.output_shape_index]
    whole.input_output_alias.entries.extend(moved.input_output_alias.entries)
    for donor in moved.buffer_donor.entries:
        donor.parameter_number += parameters
    whole.buffer_donor.entries.extend(moved.buffer_donor.entries)
    stated = list(moved.spmd_parameters_shardings)
    missing = len(moved.host_program_shape.parameters) - len(stated)
    if stated:
        gap = parameters - len(whole.spmd_parameters_shardings)
        stated = [*[pb.OpSharding()] * gap, *stated, *[pb.OpSharding()] * missing]
    whole.spmd_parameters_shardings.extend(stated)
