"""The state of a walk, which all handlers share.

The idea: a walk goes through blocks op by op.  A handler, a function of the state, the scope (the
graph under construction) and the op, decides what an op becomes.  The table of handlers is passed
to the state, which imports none of them, so that a handler may walk the blocks inside its op.

    state = WalkState(module, world, options, handlers)
    state.block(scope, module.functions["main"])
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import TypeAlias

from flint.errors import FlintError
from flint.graph.building import TableBuilder
from flint.graph.graph import NodeKind
from flint.graph.scalars import Scalar
from flint.graph.work import Role, Work, WorkItem
from flint.stablehlo.collectives.communications import Collectives
from flint.stablehlo.collectives.reduce_scatter import Finder
from flint.stablehlo.collectives.world import World
from flint.stablehlo.options import WalkOptions
from flint.stablehlo.read.records import Block, Module, Op
from flint.stablehlo.sources.origins import Origins
from flint.stablehlo.values.arrays import Array
from flint.stablehlo.walk.known import NOTHING, Known
from flint.stablehlo.walk.scope import Scope

#: More ops than this, calls opened, are refused.
MAX_OPS = 2**23


class WalkState:
    """State of one walk.

    Attributes:
        module, world, options: as given to ``walk``.
        handlers: op name -> handler of such ops.
        tables: the program's tables; type ``i`` of the module is type ``i`` there.
        origins: origins of ops.
        warnings: text -> count.
        ops: ops walked.
        known: value id -> what is known about it.
        collectives: turns records into communications.
        scatters: finds the all-reduces that are reduce-scatters; made when the first one is needed.
        instead: id of an op -> function that walks it in place of its handler, once.
        rows: key of an op -> its row, for ops that their rule describes completely.
        used_options: names of loops and conditionals for which the user's choice was needed.
        has_values: whether values of inputs are known.
        by_values: names of loops and conditionals -> the trip counts and branches that follow from
            values of inputs.
        unknown_counts: names of loops whose trip count nobody states, and their descriptions.
        call_depth: number of enclosing calls.
        communicating: id of a block -> whether it communicates.
        kernel_work: (id of a block inside a kernel, whether masks count) -> its work.
        composite_work: (id of a decomposition, whether it works in place) -> the kernel's work.
        opened: first result of a recorded composite that was opened -> its nodes and its source.
        deciding: number of enclosing data-dependent conditionals.
        trials: number of enclosing branches that are walked only for comparison.
        choices: id of a conditional -> branch, while an enclosing one is being decided.
    """

    def __init__(
        self,
        module: Module,
        world: World,
        options: WalkOptions,
        handlers: Mapping[str, Handler],
    ) -> None:
        self.module = module
        self.world = world
        self.options = options
        self.handlers = handlers
        self.tables = TableBuilder()
        self.origins = Origins(module, self.tables)
        for item in module.types:
            self.tables.type(item)
        self.warnings: Counter[str] = Counter(module.warnings)
        self.ops = 0
        self.known: dict[int, Known] = {}
        self.collectives = Collectives(module, world)
        self.scatters: Finder | None = None
        self.instead: dict[int, Handler] = {}
        self.rows: dict[tuple[object, ...], tuple[int, int, bool, bool]] = {}
        self.used_options: set[str] = set()
        self.has_values = False
        self.by_values: dict[str, int] = {}
        self.unknown_counts: dict[str, str] = {}
        self.call_depth = 0
        self.communicating: dict[int, bool] = {}
        self.kernel_work: dict[tuple[int, bool], tuple[WorkItem, ...]] = {}
        self.composite_work: dict[tuple[int, bool], Work] = {}
        self.opened: dict[int, tuple[range, int]] = {}
        self.deciding = self.trials = 0
        self.choices: dict[int, int] = {}
        self.names: Counter[str] = Counter()
        self._walked: set[int] = set()

    def block(self, scope: Scope, block: Block) -> None:
        """Walk the ops of a block into ``scope``.

        Raises:
            FlintError: more than ``MAX_OPS`` ops so far.
        """
        self.ops += len(block.ops)
        if self.ops > MAX_OPS:
            raise FlintError(f"calls and branches open into more than {MAX_OPS} ops")
        if id(block) in self._walked:
            self._forget(scope, block)
        self._walked.add(id(block))
        around, scope.block = scope.block, block
        handlers = self.handlers
        for op in block.ops:
            handlers[op.name](self, scope, op)
        scope.block = around

    def _forget(self, scope: Scope, block: Block) -> None:
        """Drop what an earlier walk of the same block stored about its values."""
        values, known = scope.values, self.known
        for op in block.ops:
            for value in op.results:
                values.pop(value, None)
                known.pop(value, None)

    def scalar(self, value: int) -> Scalar | None:
        """The expression of a value, if it has one."""
        return self.known.get(value, NOTHING).scalar

    def now(self, value: int) -> Scalar | None:
        """The expression of a value, if it has one in this step, of which inputs are known."""
        known = self.known.get(value, NOTHING)
        return known.now if known.scalar is None else known.scalar

    def array(self, value: int) -> Array | None:
        """The array that a value is, if its elements are constants or expressions."""
        return self.known.get(value, NOTHING).array

    def know(self, value: int, known: Known | None) -> None:
        """Set what is known about a value; None for nothing."""
        if known is None:
            self.known.pop(value, None)
        else:
            self.known[value] = known

    def alias(self, scope: Scope, operand: int, result: int) -> None:
        """Make a result the same value as an operand, with everything known about it."""
        scope.values[result] = scope.use(operand)
        self.know(result, self.known.get(operand))

    def aliases(self, scope: Scope, operands: tuple[int, ...], results: tuple[int, ...]) -> None:
        """``alias`` for each pair of values."""
        for operand, result in zip(operands, results, strict=True):
            self.alias(scope, operand, result)

    def view(self, scope: Scope, op: Op, value: int, kind: int) -> int:
        """The number of ``value`` as one of type ``kind``: itself, or the result of a free node.

        Types differ if ``op`` treats a shard as the whole, or a known size as unknown.
        """
        number = scope.use(value)
        if self.module.value_type[value] == kind:
            return number
        (number,) = self.free_node(scope, op, [number], [kind])
        return number

    def free_node(
        self, scope: Scope, op: Op, operands: list[int], kinds: list[int], name: str = ""
    ) -> range:
        """Add a node that takes no time and represents no op; returns its results.

        Args:
            scope: the scope.
            op: the op that the node is for, which gives its source and, without ``name``, its name.
            operands: numbers of its operands in the graph.
            kinds: types of its results.
            name: its op name.
        """
        return scope.builder.node(
            NodeKind.COMPUTE,
            self.tables.op(name or op.name),
            operands,
            kinds,
            role=Role.ALIAS,
            source=self.source(op.loc),
            ops_merged=0,
            order=scope.order(operands),
        )

    def types(self, values: tuple[int, ...]) -> list[int]:
        """Types of values, as indices."""
        value_type = self.module.value_type
        return [value_type[value] for value in values]

    def source(self, loc: object) -> int:
        """Index of an op's origin."""
        return self.origins.index(loc)

    def where(self, op: Op) -> str:
        """An op's place, for messages."""
        return self.origins.where(op)

    def name(self, kind: str) -> str:
        """The next name of a loop or conditional: ``while_0``, ``while_1`` ..."""
        number = self.names[kind]
        self.names[kind] += 1
        return f"{kind}_{number}"


#: Handler of an op: adds its nodes to the scope, and records its results.
Handler: TypeAlias = Callable[[WalkState, Scope, Op], None]
