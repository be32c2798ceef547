"""The walker: op records -> workload graph.

The idea: one pass over the entry function in text order.  Calls are opened in place, loops and
rank-dependent conditionals become nodes with bodies, collectives become communications, everything
else gets its role and work from the table of rules.  Text order is kept here; issue order is
computed by a pass.  Nothing is dropped: an op that no rule knows is a node with its types and a
warning.

    walked = walk(read_mlir(data), mesh=None, options=WalkOptions())
    walked.graph, walked.mesh, walked.warnings
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flint.errors import FlintError
from flint.graph.building import GraphBuilder, Row, TableBuilder, with_tables
from flint.graph.communication import UPPER_BOUND, Communication
from flint.graph.graph import NodeKind, WorkloadGraph
from flint.graph.scalars import Scalar
from flint.graph.tensor_types import TensorType, tensor_type
from flint.graph.work import Role, Work, WorkItem
from flint.host.collection import uncollected
from flint.mesh.mesh import Mesh
from flint.stablehlo.borrowed_sources import with_borrowed_sources
from flint.stablehlo.collectives import KINDS, Exchange
from flint.stablehlo.control import HANDLERS, Handler
from flint.stablehlo.fusions import MAX_COUNT
from flint.stablehlo.loops.loop_stacks import Stack, read
from flint.stablehlo.opening import communicates, free_values, refuse_hidden
from flint.stablehlo.options import WalkOptions
from flint.stablehlo.origins import Origins
from flint.stablehlo.read.records import Block, Module, Op, details
from flint.stablehlo.recorded.recorded_fused import Opened, handlers, issued
from flint.stablehlo.recorded.scheduled import issued_as_scheduled
from flint.stablehlo.reduce_scatter import Finder
from flint.stablehlo.rules import RULES, flops_known, rule_for
from flint.stablehlo.scope import Scope
from flint.stablehlo.values.constant_arrays import array_of, is_array
from flint.stablehlo.values.scalar_rules import is_scalar_integer, scalar_of
from flint.stablehlo.world import World, mesh_of, world_of

#: More ops than this, calls opened, are refused.
MAX_OPS = 2**23


@dataclass(frozen=True, slots=True)
class Walked:
    """What the walk of a module gives.

    Attributes:
        graph: the program, in text order.
        mesh: the mesh given, or the module's own.
        world: partitions and replicas.
        warnings: text -> count.
        ops: ops walked (calls opened, loop bodies once).
    """

    graph: WorkloadGraph
    mesh: Mesh
    world: World
    warnings: dict[str, int]
    ops: int


@uncollected
def walk(module: Module, mesh: Mesh | None = None, options: WalkOptions | None = None) -> Walked:
    """The workload graph of a module's entry function.

    Args:
        module: op records.
        mesh: the mesh to speak of; must have as many devices as the module is for.
        options: the user's choices.

    Raises:
        UsageError: a mesh of another size.
        FlintError: a loop without a trip count, a data-dependent conditional whose branches
            communicate differently, groups that do not fit, and with ``strict`` an unknown op.
    """
    world = world_of(module, mesh)
    walker = Walker(module, world, options or WalkOptions())
    graph = walker.run()
    walker.check_options()
    return Walked(
        graph,
        mesh or mesh_of(module, world),
        world,
        dict(walker.warnings),
        walker.ops,
    )


class Walker:
    """State of one walk.

    Attributes:
        module, world, options: as given to ``walk``.
        tables: the program's tables; type ``i`` of the module is type ``i`` there.
        origins: where ops come from.
        warnings: text -> count.
        ops: ops walked.
        constants: integer constant arrays by value id.
        stacks: what loops have stacked up by value id.
        futures: async_start result -> the values that async_done hands out.
        tuples: tuple value -> its elements.
    """

    def __init__(self, module: Module, world: World, options: WalkOptions) -> None:
        self.module = module
        self.world = world
        self.options = options
        self.tables = TableBuilder()
        self.origins = Origins(module, self.tables)
        for item in module.types:
            self.tables.type(item)
        self.warnings: Counter[str] = Counter(module.warnings)
        self.ops = 0
        self.constants: dict[int, NDArray[np.int64]] = {}
        self.stacks: dict[int, Stack] = {}
        self.futures: dict[int, tuple[int, ...]] = {}
        self.tuples: dict[int, tuple[int, ...]] = {}
        self.exchange = Exchange(module, world)
        self.names: Counter[str] = Counter()
        self.call_depth = 0
        self.used_options: set[str] = set()
        self._scatters: Finder | None = None
        #: Ops between an all-reduce and its slice that work on a shard (id -> shape); and slices
        #: that have become the shard itself.
        self._on_shard: dict[int, tuple[int, ...]] = {}
        self._slices: set[int] = set()
        self._may_scatter = options.reduce_scatter and not (module.issues or module.optimized)
        #: Blocks that have been walked before (by id).
        self._walked: set[int] = set()
        self._handlers: dict[str, Handler | None] = {"custom_call": Walker.custom_call}
        self._handlers |= handlers(module, options)
        #: Branches chosen for conditionals while an enclosing one is being decided.
        self.choices: dict[int, int] = {}
        self.choosing = self.deciding = 0
        #: What is known of a composite's decomposition, by function: its work, what it moves.
        self.work_of_function: dict[str, tuple[WorkItem, ...]] = {}
        self.moved_by_function: dict[tuple[str, bool], tuple[int, int, int]] = {}
        self.communicating: dict[int, bool] = {}
        #: First result of a recorded composite that was opened -> what it became.
        self.opened: dict[int, Opened] = {}
        self._definitions: dict[int, dict[int, Op]] = {}
        self._rows: dict[tuple[object, ...], tuple[int, int, bool, bool]] = {}
        self._types_suffice = {
            name for name, rule in RULES.items() if rule.types_only and rule.view is None
        }
        self._scalar_type = [is_scalar_integer(item) for item in module.types]
        self._array_type = [is_array(item) for item in module.types]

    def run(self) -> WorkloadGraph:
        """Walk ``@main``."""
        main = self.module.functions["main"]
        scope = Scope(GraphBuilder(self.tables), self.module, None)
        for argument in main.args:
            scope.values[argument] = scope.builder.input(self.module.value_type[argument])
        try:
            self.block(scope, main)
        except RecursionError:
            raise FlintError("the module nests calls or regions too deeply") from None
        outputs = [scope.use(value) for value in main.yields]
        graph = with_tables(scope.builder.finish(outputs), self.tables.finish())
        if self.module.issues:
            return issued(self, graph, scope)
        graph = with_borrowed_sources(graph)
        return issued_as_scheduled(graph) if self.module.scheduled else graph

    def check_options(self) -> None:
        """Count options that named no loop or conditional as warnings."""
        given = {*self.options.trip_counts, *self.options.branches} - {""}
        for name in sorted(given - self.used_options):
            self.warnings[f"{name}: no such loop or conditional needed a value"] += 1

    def block(self, scope: Scope, block: Block) -> None:
        """Walk the ops of a block into ``scope``."""
        self.ops += len(block.ops)
        if self.ops > MAX_OPS:
            raise FlintError(f"calls and branches open into more than {MAX_OPS} ops")
        if id(block) in self._walked:
            values = [value for op in block.ops for value in op.results]
            scope.forget(values)
            for value in values:
                self.constants.pop(value, None)
                self.stacks.pop(value, None)
        self._walked.add(id(block))
        handlers, simple = self._handlers, self.simple
        for op in block.ops:
            try:
                handler = handlers[op.name]
            except KeyError:
                handler = handlers[op.name] = handler_of(op.name)
            if handler is None:
                simple(scope, op)
            else:
                handler(self, scope, op, block)

    def custom_call(self, scope: Scope, op: Op, block: Block) -> None:
        """A custom call: a communication or a kernel, by its target."""
        if self.exchange.kind_of(op) is not None:
            self.collective(scope, op, block)
        else:
            refuse_hidden(self, op)
            self.simple(scope, op)

    def simple(self, scope: Scope, op: Op) -> None:
        """An op that its rule describes completely."""
        values = scope.values
        try:
            operands = [values[value] for value in op.operands]
        except KeyError:
            operands = [scope.use(value) for value in op.operands]
        if self._on_shard and id(op) in self._on_shard:
            self._shard_op(scope, op, operands)
            return
        if op.regions:
            self._look_inside(scope, op, operands)
        name = op.name
        value_type = self.module.value_type
        key: tuple[object, ...] = (
            name,
            *[value_type[value] for value in op.operands],
            -1,
            *[value_type[value] for value in op.results],
        )
        if name not in self._types_suffice:
            key = (*key, details(op, value_type))
        try:
            found = self._rows.get(key)
        except TypeError:  # an attribute that cannot be compared
            found = self._row(op)
        if found is None:
            found = self._row(op)
            if name in RULES and name != "custom_call":  # those warn each time
                self._rows[key] = found
        row, results, integer, array = found
        loc = op.loc
        source = self.origins.known.get(loc)
        if source is None:
            source = self.source(loc)
        order = scope.order(operands) if scope.gates else ()
        first = scope.builder.add(row, results, operands, source, order)
        if results == 1:
            values[op.results[0]] = first
        else:
            for number, value in enumerate(op.results):
                values[value] = first + number
        if array:
            self._remember(op)
        if integer:
            scalar = scalar_of(op, self.module, scope.scalar, self.constants.get)
            if scalar is None and name == "dynamic_slice" and op.operands[0] in self.stacks:
                scalar = read(op, self.module, self.stacks[op.operands[0]], scope.scalar)
            if scalar is not None:
                scope.scalars[op.results[0]] = scalar

    def _look_inside(self, scope: Scope, op: Op, operands: list[int]) -> None:
        """Add what the regions of an op use from outside to its operands.

        Raises:
            FlintError: a communication inside an op of which nobody knows when its regions run.
        """
        if op.name not in RULES and any(communicates(self, block) for block in op.regions):
            raise FlintError(
                f"{self.where(op)}: there is a communication inside this unknown op, and how "
                "often it runs is unknown"
            )
        for value in sorted(free_values(op.regions)):
            number = scope.use(value)
            if number not in operands:
                operands.append(number)

    def _row(self, op: Op) -> tuple[int, int, bool, bool]:
        """(row, number of results, may the first have an expression, may it be an array)."""
        name, role, work = self.measure(op)
        types = tuple(self.module.value_type[value] for value in op.results)
        row = self.tables.row(Row(int(NodeKind.COMPUTE), role, name, -1, 1, types, work))
        integer = bool(types) and self._scalar_type[types[0]]
        array = bool(types) and (op.name == "constant" or self._array_type[types[0]])
        return row, len(types), integer, array

    def measure(self, op: Op) -> tuple[int, int, Work]:
        """(op index, role, work) of an op by its rule."""
        type_of = self.module.type_of
        ins = [type_of(value) for value in op.operands]
        outs = [type_of(value) for value in op.results]
        rule, known = rule_for(op)
        name = op.name if op.name != "custom_call" else str(op.attr("target", "custom_call"))
        if not known:
            self._unknown(op, name)
        elif op.name == "custom_call" and not flops_known(op, ins, outs):
            what = (
                "calls Python on the host: its time is" if "_python_" in name else "its FLOPs are"
            )
            self.warnings[f"custom_call @{name}: {what} not known (counted as 0)"] += 1
        try:
            work = rule.work(op, ins, outs)
        except (IndexError, KeyError, TypeError, ValueError, ZeroDivisionError) as error:
            shown = ", ".join(map(str, ins))
            raise FlintError(
                f"{self.where(op)}: {name}({shown}) does not have the form of that op: {error}"
            ) from error
        except FlintError as error:
            raise FlintError(f"{self.where(op)}: {error}") from error
        counts = (work.read, work.written, *(item.flops for item in work.items))
        if max(counts) > MAX_COUNT:
            raise FlintError(f"{self.where(op)}: {name} does or moves more than 2**60 at once")
        view = rule.view is not None and rule.view(op, ins, outs)
        return self.tables.op(name), int(Role.ALIAS if view else rule.role), work

    def _unknown(self, op: Op, name: str) -> None:
        kind = "custom_call target" if op.name == "custom_call" else "op"
        if self.options.strict:
            raise FlintError(f"{self.where(op)}: unknown {kind} {name} (--strict)")
        self.warnings[
            f"unknown {kind} {name}: counted by the bytes of its operands and results"
        ] += 1

    def collective(self, scope: Scope, op: Op, block: Block) -> None:
        """A communication."""
        kind = self.exchange.kind_of(op)
        if kind is None or op.attr("is_host_transfer", False):
            self.warnings[f"{op.name} to the host: counted as data movement"] += 1
            self.simple(scope, op)
            return
        try:
            item = self.exchange.communication(op, kind, self.constants.get)
        except FlintError as error:
            raise FlintError(f"{self.where(op)}: {error}") from error
        operands = [scope.use(value) for value in op.operands]
        types = [self.module.type_of(value) for value in op.results]
        if kind == "all_reduce" and self._may_scatter:
            item, types = self._scatter(scope, op, block, item, types)
        if not item.exact:
            self.warnings[f"{kind} of data-dependent size: counted at {UPPER_BOUND}"] += 1
        results = scope.builder.communication(
            item, operands, types, source=self.source(op.loc), order=scope.order(operands)
        )
        for value, number in zip(op.results, results, strict=True):
            scope.values[value] = number

    def _scatter(
        self, scope: Scope, op: Op, block: Block, item: Communication, types: list[TensorType]
    ) -> tuple[Communication, list[TensorType]]:
        """The reduce-scatter that an all-reduce is, or the all-reduce unchanged."""
        if self._scatters is None:
            self._scatters = Finder(self.module, self.world)
        found = self._scatters.find(op, block, item, self._on_demand(scope, block))
        if found is None:
            return item, types
        for between in found.between:
            self._on_shard[id(between)] = found.shard
        self._slices.add(id(found.slice))
        shard = tensor_type(found.shard, types[0].dtype)
        scattered = replace(
            item, kind="reduce_scatter", result_bytes=(shard.bytes,), origin="all_reduce"
        )
        return scattered, [shard]

    def _on_demand(self, scope: Scope, block: Block) -> Callable[[int], Scalar | None]:
        """Expressions of values of ``block``, also of ops that stand further down."""
        definitions = self._definitions.get(id(block))
        if definitions is None:
            definitions = {value: op for op in block.ops for value in op.results}
            self._definitions[id(block)] = definitions
        ahead: dict[int, Scalar | None] = {}

        def scalar(value: int, depth: int = 0) -> Scalar | None:
            op = definitions.get(value)
            if op is None or value in scope.values:
                return scope.scalar(value)
            if value in ahead or depth > 64:
                return ahead.get(value)
            ahead[value] = None
            if value == op.results[0] and is_scalar_integer(self.module.type_of(value)):
                for operand in op.operands:
                    made = definitions.get(operand)
                    if made is not None and made.name in ("constant", "iota"):
                        self._remember(made)
                ahead[value] = scalar_of(
                    op, self.module, lambda v: scalar(v, depth + 1), self.constants.get
                )
            return ahead[value]

        return scalar

    def _remember(self, op: Op) -> None:
        """Keep a small array of integers that is known, or a stack, for look-ups."""
        if op.name in ("mhlo.copy", "reshape"):
            self.keep_stack(self.stacks.get(op.operands[0]), op.results[0])
        array = array_of(op, self.module, self.constants.get)
        if array is not None:
            self.constants[op.results[0]] = array

    def keep_array(self, value: int, name: int) -> None:
        """Let the value ``name`` be the array, or the stack, that ``value`` is."""
        self.keep_stack(self.stacks.get(value), name)
        array = self.constants.get(value)
        if array is not None:
            self.constants[name] = array
        else:
            self.constants.pop(name, None)

    def keep_stack(self, stack: Stack | None, name: int) -> None:
        """Let the value ``name`` be a stack, or none."""
        if stack is not None:
            self.stacks[name] = stack
        else:
            self.stacks.pop(name, None)

    def slice_of_shard(self, scope: Scope, op: Op) -> bool:
        """Whether a dynamic_slice has become the shard that a reduce-scatter gives."""
        if id(op) not in self._slices:
            return False
        self._slices.discard(id(op))
        scope.values[op.results[0]] = scope.values[op.operands[0]]
        return True

    def _shard_op(self, scope: Scope, op: Op, operands: list[int]) -> None:
        """An op between an all-reduce that is a reduce-scatter and its slice, on the shard."""
        shape = self._on_shard.pop(id(op))
        ins = [tensor_type(shape, self.module.type_of(op.operands[0]).dtype)]
        outs = [tensor_type(shape, self.module.type_of(op.results[0]).dtype)]
        rule, _ = rule_for(op)
        results = scope.builder.node(
            NodeKind.COMPUTE,
            self.tables.op(op.name),
            operands,
            [self.tables.type(outs[0])],
            role=rule.role,
            work=rule.work(op, ins, outs),
            source=self.source(op.loc),
        )
        scope.values[op.results[0]] = results[0]

    def alias(self, scope: Scope, operand: int, result: int) -> None:
        """Let a result be the same value as an operand, with all that is known of it."""
        scope.values[result] = scope.use(operand)
        scalar = scope.scalar(operand)
        if scalar is not None:
            scope.scalars[result] = scalar
        else:
            scope.scalars.pop(result, None)
        tables: list[dict[int, Any]] = [self.constants, self.stacks, self.tuples, self.futures]
        for table in tables:
            if operand in table:
                table[result] = table[operand]
            else:
                table.pop(result, None)

    def view(self, scope: Scope, op: Op, value: int, kind: int) -> int:
        """The number of ``value`` as one of type ``kind``: itself, or a free node that says so.

        Types differ where ``op`` takes a shard for the whole, or a size that is known for one that
        is not.
        """
        number = scope.use(value)
        if self.module.value_type[value] == kind:
            return number
        (number,) = scope.builder.node(
            NodeKind.COMPUTE,
            self.tables.op(op.name),
            [number],
            [kind],
            role=Role.ALIAS,
            source=self.source(op.loc),
            ops_merged=0,
            order=scope.order([number]),
        )
        return number

    def source(self, loc: object) -> int:
        """Index of an op's origin."""
        return self.origins.index(loc)

    def where(self, op: Op) -> str:
        """Where an op stands, for messages."""
        return self.origins.where(op)

    def name(self, kind: str) -> str:
        """The next name of a loop or conditional: ``while_0``, ``while_1`` ..."""
        number = self.names[kind]
        self.names[kind] += 1
        return f"{kind}_{number}"


def handler_of(name: str) -> Handler | None:
    """What walks the ops called ``name``; None for those that their rule describes completely."""
    if name.removeprefix("mhlo.") in KINDS:
        return Walker.collective
    return HANDLERS.get(name)
