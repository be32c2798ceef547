"""Every kernel of a compiled module as a separate module: for XLA's cost analysis and for ours.

The idea: XLA gives one total per module.  So each instruction of the schedule is cut out with the
computations that it calls, its operands made parameters, and both analyses asked.
"""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import NamedTuple

from jaxlib import _jax, xla_client

from flint.hlo import hlo_pb2 as pb
from flint.hlo.messages import parse_module
from flint.hlo.reader import read_hlo
from flint.stablehlo.walker import walk

FOLDER = Path(__file__).parents[2] / "data" / "optimized"

#: Neither kernels nor communications: names of values, or computations that are measured inside.
PLUMBING = frozenset(
    ("after-all", "bitcast", "call", "conditional", "constant", "get-tuple-element", "parameter",
     "tuple", "while")
)  # fmt: skip

#: What travels; its bytes are the communication's and compared elsewhere.
EXCHANGES = (
    "all-", "async-", "collective-", "ragged-all-to-all", "copy-", "recv", "reduce-scatter", "send",
)  # fmt: skip


#: A window without dims; serialised it is a field that XLA does not know, since an empty field
#: would not be written and XLA wants it to be there.
EMPTY_WINDOW = b"\xf8\x07\x01"


class Cost(NamedTuple):
    """What one kernel does."""

    flops: int
    bytes: int


class Kernel(NamedTuple):
    """One instruction of a schedule and its module."""

    name: str
    opcode: str
    module: pb.HloModuleProto

    @property
    def instruction(self):
        [computation] = [
            c for c in self.module.computations if c.id == self.module.entry_computation_id
        ]
        return computation.instructions[-1]

    @property
    def called(self):
        """Instructions of the computations that it calls."""
        wanted = set(self.instruction.called_computation_ids)
        return [i for c in self.module.computations if c.id in wanted for i in c.instructions]


def load(name: str) -> bytes:
    """The serialised module of a saved file."""
    return gzip.decompress((FOLDER / f"{name}.hlo.pb.gz").read_bytes())


def kernels(data: bytes) -> list[Kernel]:
    """The kernels of a scheduled module."""
    module = parse_module(data)
    computations = {computation.id: computation for computation in module.computations}
    found = []
    for number in module.schedule.sequences:
        instructions = {i.id: i for i in computations[number].instructions}
        for instruction in computations[number].instructions:
            opcode = instruction.opcode
            if opcode not in PLUMBING and not opcode.startswith(EXCHANGES):
                single = _alone(module, computations, instruction, instructions)
                found.append(Kernel(instruction.name, instruction.opcode, single))
    return found


def _alone(whole, computations, instruction, instructions) -> pb.HloModuleProto:
    module = pb.HloModuleProto(name="single", entry_computation_name="entry")
    module.device_assignment.CopyFrom(whole.device_assignment)
    module.payloads.extend(whole.payloads)
    needed, pending = {}, list(instruction.called_computation_ids)
    while pending:
        number = pending.pop()
        if number not in needed:
            needed[number] = computations[number]
            pending += [
                c for i in computations[number].instructions for c in i.called_computation_ids
            ]
    for computation in whole.computations:  # callees stand before callers
        if computation.id in needed:
            module.computations.append(computation)
    entry = module.computations.add(name="entry", id=max(computations) + 1)
    copied = pb.HloInstructionProto()
    copied.CopyFrom(instruction)
    del copied.control_predecessor_ids[:]
    for place, operand in enumerate(instruction.operand_ids):
        shape = instructions[operand].shape
        number = entry.id << 32 | place
        entry.instructions.add(
            name=f"p{place}", opcode="parameter", parameter_number=place, id=number, shape=shape
        )
        entry.program_shape.parameters.append(pb.ShapeProto.FromString(shape))
        entry.program_shape.parameter_names.append(f"p{place}")
        copied.operand_ids[place] = number
    copied.id = entry.id << 32 | len(instruction.operand_ids)
    entry.instructions.append(copied)
    entry.program_shape.result.CopyFrom(pb.ShapeProto.FromString(instruction.shape))
    entry.root_id = copied.id
    module.entry_computation_id = entry.id
    module.host_program_shape.CopyFrom(entry.program_shape)
    module.input_output_alias.SetInParent()
    module.frontend_attributes.SetInParent()
    module.schedule.sequences[entry.id].instruction_ids.extend(i.id for i in entry.instructions)
    return module


def xlas(kernel: Kernel, client) -> Cost:
    """What XLA's cost analysis says."""
    proto = pb.HloModuleProto()
    proto.CopyFrom(kernel.module)
    proto.ClearField("schedule")
    proto.ClearField("device_assignment")
    for computation in proto.computations:
        for instruction in computation.instructions:
            if instruction.opcode == "convolution" and not instruction.window:
                instruction.window = EMPTY_WINDOW
    module = xla_client.XlaComputation(proto.SerializeToString()).get_hlo_module()
    cost = _jax.hlo_module_cost_analysis(client, module)
    return Cost(int(cost.get("flops", 0)), int(cost.get("bytes accessed", 0)))


def ours(kernel: Kernel) -> Cost:
    """What the graph says."""
    graph = walk(read_hlo(kernel.module.SerializeToString(), kernel.name)).graph
    return Cost(
        int(graph.flops_by_node().sum()),
        int(graph.bytes_read.sum() + graph.bytes_written.sum()),
    )
