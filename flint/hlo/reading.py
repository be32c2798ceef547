"""The state of one reading of an HLO proto, and the pass over the instructions of a computation.

The idea: an instruction whose opcode has a row (``opcodes.py``) becomes one record.  The others
(tuples, control flow, halves of asynchronous operations) have handlers, which are passed in, not
imported.  Nested messages (shapes, metadata, groups) arrive serialised and are parsed once per
distinct content.  A scheduled module is read in the order of its schedule.

    reading = Reading(proto, "step.hlo.pb", HANDLERS)
    main = reading.entry(proto.entry_computation_id, Scope())
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from google.protobuf.message import DecodeError

from flint.errors import FlintError
from flint.graph.tensor_types import TOKEN
from flint.hlo import hlo_pb2 as pb
from flint.hlo.context import Context
from flint.hlo.locations import Locations
from flint.hlo.opcodes import OPTIMIZED_ROWS, ROWS
from flint.hlo.scope import Scope
from flint.hlo.shapes import Tree, TypeTable, flatten
from flint.stablehlo.read.records import Block, Op

#: The deepest nesting of computations; real modules stay below 30.
MAX_DEPTH = 100


class Reading:
    """State of one reading.

    Attributes:
        proto, name, handlers: as given.
        warnings: text -> count.
        types, value_type: the module's types, and the type of each value.
        functions: the functions so far.
        scheduled: the module has a schedule.
        optimized: a backend has compiled it: its fusions and copies are kernels.
        partitions, replicas: as the module states them.
        context: state shared by the decoders of attributes.
        locations: where instructions come from.
    """

    def __init__(
        self, proto: pb.HloModuleProto, name: str, handlers: Mapping[str, Handler]
    ) -> None:
        self.proto = proto
        self.name = name
        self.handlers = handlers
        self.types = TypeTable(name)
        self.warnings = self.types.warnings
        self.value_type: list[int] = []
        self.computations = {computation.id: computation for computation in proto.computations}
        self.functions: dict[str, Block] = {}
        self.scheduled = proto.entry_computation_id in proto.schedule.sequences
        #: A backend has compiled it: its fusions and copies are kernels.
        self.optimized = self.scheduled or any(
            computation.is_fusion_computation for computation in proto.computations
        )
        devices = proto.device_assignment
        self.partitions = max(devices.computation_count, 1)
        self.replicas = max(devices.replica_count, 1)
        payloads = tuple(proto.payloads)
        self.context = Context(payloads)
        self.locations = Locations(proto.stack_frame_index, payloads)
        self._names: dict[int, str] = {}
        self._regions: dict[int, Block] = {}
        self._captured: set[int] = set()
        self._active: set[int] = set()

    def entry(self, number: int, scope: Scope) -> Block:
        """The entry computation, as the function ``main``."""
        self._names[number] = "main"
        self.functions["main"] = self._block(number, scope)
        return self.functions["main"]

    def region(self, computation: int) -> Block:
        """A computation as a block with arguments; shared by all instructions that call it."""
        block = self._regions.get(computation)
        if block is None:
            block = self._regions[computation] = self._block(computation, Scope())
        return block

    def captured(self, computation: int, arguments: list[Tree], caller: Any) -> Block:
        """A computation as a block without arguments that uses the caller's values directly.

        A second use becomes a call, so that reading never costs more than the module's size.
        """
        if computation not in self._captured:
            self._captured.add(computation)
            return self._block(computation, Scope(arguments))
        callee = self.function(computation)
        operands = tuple([value for tree in arguments for value in flatten(tree)])
        function = self.functions[callee]
        if len(function.args) != len(operands):
            raise ValueError(f"{callee} takes {len(function.args)} values, not {len(operands)}")
        results = tuple(range(len(self.value_type), len(self.value_type) + len(function.yields)))
        self.value_type += [self.value_type[value] for value in function.yields]
        loc = self.location(caller)
        call = Op("call", operands, results, {"callee": callee}, (), loc)
        return Block((), [call], results)

    def function(self, computation: int) -> str:
        """The name of the function that a computation becomes."""
        name = self._names.get(computation)
        if name is None:
            name = self._computation(computation).name
            if name in self.functions or name == "main":
                name = f"{name}.{computation}"
            self._names[computation] = name
            self.functions[name] = self._block(computation, Scope())
        elif computation in self._active:
            raise ValueError("the computation calls itself")
        return name

    def new_values(self, shape: bytes) -> Tree:
        """New values for a serialised shape."""
        return self.new_values_of(self.types.tree(shape))

    def new_values_of(self, tree: Tree) -> Tree:
        """New values for a tree of types."""
        if isinstance(tree, int):
            self.value_type.append(tree)
            return len(self.value_type) - 1
        return tuple([self.new_values_of(part) for part in tree])

    def new_token(self) -> int:
        """A new value of token type."""
        self.value_type.append(self.types.intern(TOKEN))
        return len(self.value_type) - 1

    def emit(
        self,
        name: str,
        instruction: Any,
        scope: Scope,
        attrs: dict[str, Any] | None = None,
        regions: tuple[Block, ...] = (),
    ) -> Op:
        """Append the record whose operands and results are the instruction's, tuples flattened."""
        operands = scope.flat(instruction.operand_ids)
        tree = self.new_values(instruction.shape)
        op = self.append(name, instruction, scope, operands, flatten(tree), attrs, regions)
        scope.bind(instruction.id, tree)
        return op

    def append(
        self,
        name: str,
        instruction: Any,
        scope: Scope,
        operands: list[int],
        results: list[int],
        attrs: dict[str, Any] | None = None,
        regions: tuple[Block, ...] = (),
    ) -> Op:
        """Append a record that comes from an instruction, and bind nothing."""
        loc = self.location(instruction)
        op = Op(name, tuple(operands), tuple(results), attrs, regions, loc)
        scope.ops.append(op)
        return op

    def location(self, instruction: Any) -> int | str:
        """The argument for ``Module.location``: a number, or a name if there is no metadata."""
        numbers = self.locations.numbers
        if not instruction.metadata:
            return str(instruction.name)
        return numbers.setdefault(instruction.metadata, len(numbers))

    def _computation(self, number: int) -> Any:
        computation = self.computations.get(number)
        if computation is None:
            raise ValueError(f"the computation with id {number} is missing (file cut off?)")
        return computation

    def _block(self, number: int, scope: Scope) -> Block:
        computation = self._computation(number)
        if number in self._active:
            raise ValueError(f"the computation {computation.name} calls itself")
        if len(self._active) >= MAX_DEPTH:
            raise ValueError(f"computations are nested more than {MAX_DEPTH} deep")
        self._active.add(number)
        self._instructions(computation, scope)
        self._active.discard(number)
        numbers = sorted(scope.parameters)
        if numbers != list(range(len(numbers))):
            raise FlintError(f"{self.name}: {computation.name} has only the parameters {numbers}")
        arguments: list[int] = []
        if scope.bound is None:
            arguments = [value for n in numbers for value in flatten(scope.parameters[n])]
        try:
            yields = flatten(scope.tree(root_id(computation)))
        except ValueError:
            raise FlintError(f"{self.name}: {computation.name} lacks its root") from None
        scope.drop_unused_contexts(yields)
        return Block(tuple(arguments), scope.ops, tuple(yields))

    def _instructions(self, computation: Any, scope: Scope) -> None:
        rows = OPTIMIZED_ROWS if self.optimized else ROWS
        handlers, context = self.handlers, self.context
        types, value_type, numbers = self.types.by_bytes, self.value_type, self.locations.numbers
        values, append = scope.values, scope.ops.append
        value_of = values.__getitem__
        instruction: Any = None
        controlled = 0
        try:
            for instruction in self._in_order(computation):
                opcode = instruction.opcode
                if instruction.control_predecessor_ids:
                    controlled += 1
                row = rows.get(opcode)
                if row is None:
                    handlers.get(opcode, _unknown)(self, instruction, scope)
                    continue
                name, decode, has_regions = row
                try:
                    operands = tuple(map(value_of, instruction.operand_ids))
                except KeyError:  # a tuple, or missing
                    operands = tuple(scope.flat(instruction.operand_ids))
                attrs = None if decode is None else decode(instruction, context)
                regions: tuple[Block, ...] = ()
                if has_regions:
                    regions = tuple([self.region(c) for c in instruction.called_computation_ids])
                shape = instruction.shape
                tree = types.get(shape)
                if tree is None:
                    tree = self.types.tree(shape)
                if tree.__class__ is int:
                    value = len(value_type)
                    value_type.append(tree)
                    values[instruction.id] = value
                    results: tuple[int, ...] = (value,)
                else:
                    new = self.new_values_of(tree)
                    scope.bind(instruction.id, new)
                    results = tuple(flatten(new))
                metadata = instruction.metadata
                loc: int | str
                if metadata:
                    loc = numbers.setdefault(metadata, len(numbers))
                else:
                    loc = instruction.name
                append(Op(name, operands, results, attrs, regions, loc))
        except (ValueError, IndexError, DecodeError) as error:
            where = f"%{instruction.name} ({instruction.opcode})" if instruction else "its schedule"
            raise FlintError(
                f"{self.name}: in computation {computation.name}, {where}: {error}"
            ) from error
        if controlled and not self.scheduled:
            text = "instructions with control dependencies, which are not kept"
            self.warnings[text] += controlled

    def _in_order(self, computation: Any) -> Any:
        """Instructions in the order of the schedule, or, without one, as they are written."""
        schedule = self.proto.schedule.sequences
        if computation.id not in schedule:
            return computation.instructions
        by_id = {instruction.id: instruction for instruction in computation.instructions}
        order = schedule[computation.id].instruction_ids
        if len(order) != len(by_id) or not all(number in by_id for number in order):
            raise ValueError("the schedule and the computation have different instructions")
        return [by_id[number] for number in order]


def root_id(computation: Any) -> int:
    """The id of the instruction whose value a computation yields; 0 if there is none."""
    if computation.root_id:
        return int(computation.root_id)
    return int(computation.instructions[-1].id) if computation.instructions else 0


def _unknown(reading: Reading, instruction: Any, scope: Scope) -> None:
    """An opcode without a row: kept with its types, and counted."""
    opcode = instruction.opcode
    reading.warnings[f"unknown HLO opcode {opcode!r}: kept without work"] += 1
    reading.emit(f"hlo.{opcode}", instruction, scope)


#: (reading, instruction, scope): appends records and binds the instruction's value.
Handler: TypeAlias = Callable[[Reading, Any, Scope], None]
