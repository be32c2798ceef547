"""Random workload graphs for property tests.

The idea: a program is grown op by op from a table of op makers, each of which picks operands of
fitting types among the values that there are.  Loops (nested, with swapped and passed-through
carries and invariants), communications (variadic ones too), aliases, generators,
views, in-place updates and order edges all occur; every graph satisfies
``flint.graph.verification``.

    @given(workload_graphs())
    def test_something(graph): ...
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hypothesis import strategies as st

from flint.graph.building import GraphBuilder, TableBuilder
from flint.graph.communication import Communication
from flint.graph.graph import EdgeKind, Loop, WorkloadGraph, with_tables
from flint.graph.tensor_types import TensorType, tensor_type
from flint.graph.work import NO_WORK, Role, Unit, Work, WorkItem
from flint.mesh.groups import everybody

SCALAR = tensor_type((), "i32")
SMALL = tensor_type((4,), "f32")
WIDE = tensor_type((4, 8), "f32")
FLAT = tensor_type((32,), "f32")
HALF = tensor_type((4, 8), "bf16")
LARGE = tensor_type((16, 32), "f32")
TYPES = (SCALAR, SMALL, WIDE, FLAT, HALF, LARGE)


class Program:
    """A block under construction: the builder and the values that there are, by type."""

    def __init__(self, draw: st.DrawFn, tables: TableBuilder, order_edges: bool) -> None:
        self.draw = draw
        self.builder = GraphBuilder(tables)
        self.values: list[tuple[int, TensorType]] = []
        self.order_edges = order_edges

    def input(self, item: TensorType) -> None:
        self.values.append((self.builder.input(self.builder.tables.type(item)), item))

    def pick(self, *wanted: TensorType) -> int:
        """A value of one of the types (any, without one); a constant where there is none."""
        fitting = [v for v, t in self.values if not wanted or t in wanted]
        if not fitting:
            return self.made("constant", Role.GENERATE, (), (wanted or (SMALL,))[:1], NO_WORK)[0]
        return self.draw(st.sampled_from(fitting))

    def type_of(self, value: int) -> TensorType:
        return next(item for number, item in self.values if number == value)

    def order(self) -> list[tuple[int, EdgeKind]]:
        nodes = len(self.builder)
        if not self.order_edges or not nodes or self.draw(st.integers(0, 5)):
            return []
        return [(self.draw(st.integers(0, nodes - 1)), EdgeKind.ORDER)]

    def made(
        self,
        op: str,
        role: Role,
        operands: Sequence[int],
        types: Sequence[TensorType],
        work: Work,
    ) -> list[int]:
        results = list(self.builder.compute(op, role, operands, types, work, self.order()))
        self.values.extend(zip(results, types, strict=True))
        return results


def _constant(p: Program) -> None:
    p.made("constant", Role.GENERATE, (), (p.draw(st.sampled_from(TYPES)),), NO_WORK)


def _iota(p: Program) -> None:
    p.made("iota", Role.GENERATE, (), (FLAT,), Work((), 0, FLAT.bytes))


def _broadcast(p: Program) -> None:
    source = p.pick(SCALAR, SMALL)
    read = p.type_of(source).bytes
    p.made("broadcast_in_dim", Role.MOVEMENT, (source,), (WIDE,), Work((), read, WIDE.bytes))


def _elementwise(p: Program) -> None:
    item = p.draw(st.sampled_from((SMALL, WIDE, WIDE, LARGE)))
    operands = (p.pick(item), p.pick(item))
    unit = p.draw(st.sampled_from((Unit.VECTOR, Unit.TRANSCENDENTAL)))
    work = Work((WorkItem(unit, "f32", item.elements),), 2 * item.bytes, item.bytes)
    p.made("add", Role.ELEMENTWISE, operands, (item,), work)


def _convert(p: Program) -> None:
    source, target = p.draw(st.sampled_from(((WIDE, HALF), (HALF, WIDE))))
    items = (WorkItem(Unit.VECTOR, source.dtype, 32),)
    work = Work(items, source.bytes, target.bytes)
    p.made("convert", Role.ELEMENTWISE, (p.pick(source),), (target,), work)


def _transpose(p: Program) -> None:
    value = p.pick(WIDE, LARGE)
    item = p.type_of(value)
    p.made("transpose", Role.MOVEMENT, (value,), (item,), Work((), item.bytes, item.bytes))


def _view(p: Program) -> None:
    value = p.pick(WIDE)
    p.made("transpose", Role.MOVEMENT, (value,), (WIDE,), Work((), 0, 0, WIDE.bytes))


def _slice(p: Program) -> None:
    operands = (p.pick(WIDE, LARGE), p.pick(SCALAR))
    work = Work((), SMALL.bytes + SCALAR.bytes, SMALL.bytes)
    p.made("dynamic_slice", Role.MOVEMENT, operands, (SMALL,), work)


def _reduce(p: Program) -> None:
    value = p.pick(WIDE, LARGE)
    item = p.type_of(value)
    work = Work((WorkItem(Unit.VECTOR, "f32", item.elements),), item.bytes, SMALL.bytes)
    p.made("reduce", Role.REDUCTION, (value,), (SMALL,), work)


def _dot(p: Program) -> None:
    operands = (p.pick(WIDE, HALF), p.pick(WIDE, HALF, LARGE))
    result = p.draw(st.sampled_from((WIDE, SMALL, LARGE)))
    read = sum(p.type_of(value).bytes for value in operands)
    k = p.draw(st.sampled_from((8, 16)))
    item = WorkItem(Unit.MATMUL, "f32", 2 * result.elements * k, (1, result.elements, 1, k))
    p.made("dot_general", Role.CONTRACTION, operands, (result,), Work((item,), read, result.bytes))


def _update(p: Program) -> None:
    buffer = p.pick(WIDE, LARGE)
    item = p.type_of(buffer)
    operands = (buffer, p.pick(SMALL), p.pick(SCALAR))
    work = Work((), SMALL.bytes + SCALAR.bytes, SMALL.bytes, item.bytes - SMALL.bytes)
    p.made("dynamic_update_slice", Role.UPDATE, operands, (item,), work)


def _opaque(p: Program) -> None:
    operands = (p.pick(WIDE), p.pick(SMALL))
    work = Work((WorkItem(Unit.VECTOR, "f32", 160),), WIDE.bytes + SMALL.bytes, 2 * SMALL.bytes)
    p.made("sort", Role.OPAQUE, operands, (SMALL, SMALL), work)


def _reshape(p: Program) -> None:
    source, target = p.draw(st.sampled_from(((WIDE, FLAT), (FLAT, WIDE), (SMALL, SMALL))))
    p.made("reshape", Role.ALIAS, (p.pick(source),), (target,), Work((), 0, 0, target.bytes))


def _barrier(p: Program) -> None:
    operands = [p.pick() for _ in range(p.draw(st.integers(1, 3)))]
    types = [p.type_of(value) for value in operands]
    p.made("optimization_barrier", Role.ALIAS, operands, types, NO_WORK)


def _tuple(p: Program) -> None:
    operands = [p.pick(SMALL), p.pick(WIDE)]
    p.made("tuple", Role.ALIAS, operands, (tensor_type((36,), "f32"),), NO_WORK)


def _communication(p: Program) -> None:
    kind = p.draw(st.sampled_from(("all_reduce", "all_gather", "reduce_scatter", "variadic")))
    sources, targets = {
        "all_reduce": ((WIDE,), (WIDE,)),
        "all_gather": ((SMALL,), (WIDE,)),
        "reduce_scatter": ((WIDE,), (SMALL,)),
        "variadic": ((WIDE, SMALL), (WIDE, SMALL)),
    }[kind]
    item = Communication(
        "all_reduce" if kind == "variadic" else kind,
        "add",
        everybody(8),
        None,
        tuple(t.bytes for t in sources),
        tuple(t.bytes for t in targets),
        ("f32",) * len(sources),
    )
    operands = [p.pick(t) for t in sources]
    results = p.builder.communication(item, operands, targets, order=p.order())
    p.values.extend(zip(results, targets, strict=True))


_MAKERS: tuple[Callable[[Program], None], ...] = (
    _constant,
    _iota,
    _broadcast,
    _elementwise,
    _elementwise,
    _elementwise,
    _convert,
    _transpose,
    _view,
    _slice,
    _reduce,
    _dot,
    _dot,
    _update,
    _opaque,
    _reshape,
    _barrier,
    _tuple,
    _communication,
    _communication,
    _communication,
)


def _loop(p: Program, depth: int) -> None:
    carried = p.draw(st.lists(st.sampled_from(TYPES[:4]), min_size=1, max_size=4))
    invariant = p.draw(st.lists(st.sampled_from(TYPES[:4]), max_size=2))
    body = _block(p, [*carried, *invariant], carried, depth)
    loop = Loop(body, len(carried), p.draw(st.integers(0, 3)))
    operands = [p.pick(item) for item in (*carried, *invariant)]
    results = p.builder.loop(loop, operands, order=p.order())
    p.values.extend(zip(results, carried, strict=True))


def _block(
    parent: Program, inputs: Sequence[TensorType], outputs: Sequence[TensorType], depth: int
) -> WorkloadGraph:
    block = Program(parent.draw, parent.builder.tables, parent.order_edges)
    for item in inputs:
        block.input(item)
    _fill(block, parent.draw(st.integers(0, 8)), depth - 1)
    return block.builder.finish([block.pick(item) for item in outputs])


def _fill(program: Program, nodes: int, depth: int) -> None:
    for _ in range(nodes):
        choice = program.draw(st.integers(0, len(_MAKERS) + (1 if depth > 0 else 0)))
        if choice < len(_MAKERS):
            _MAKERS[choice](program)
        elif choice == len(_MAKERS):
            _elementwise(program)
        else:
            _loop(program, depth)


@st.composite
def workload_graphs(
    draw: st.DrawFn, max_nodes: int = 25, depth: int = 2, order_edges: bool = True
) -> WorkloadGraph:
    """A random program.

    Args:
        max_nodes: ops at the top level (bodies have up to 8).
        depth: levels of loops, 0 for none.
        order_edges: whether some nodes wait for others without data.
    """
    tables = TableBuilder()
    program = Program(draw, tables, order_edges)
    for item in draw(st.lists(st.sampled_from(TYPES), min_size=1, max_size=4)):
        program.input(item)
    _fill(program, draw(st.integers(0, max_nodes)), depth)
    outputs = draw(st.lists(st.sampled_from([v for v, _ in program.values]), max_size=4))
    graph = program.builder.finish(outputs)
    return with_tables(graph, tables.finish())
