"""Peak memory from lifetimes, counted by hand."""

from __future__ import annotations

import pytest

from flint.graph.building import GraphBuilder, TableBuilder
from flint.graph.graph import Loop, WorkloadGraph, with_tables
from flint.graph.tensor_types import tensor_type
from flint.graph.work import Role, Unit, Work, WorkItem
from flint.simulation.memory import peak_memory
from flint.workload.programs import ProgramInput

ONE = tensor_type((1000,), "i8")  # 1000 bytes
TEN = tensor_type((10000,), "i8")


def made(builder: GraphBuilder, operands, result=ONE, role=Role.OPAQUE, aliased=0) -> int:
    size = result.bytes
    work = Work((WorkItem(Unit.VECTOR, "i8", size),), size, size - aliased, aliased)
    (value,) = builder.compute("op", role, operands, (result,), work)
    return value


def peak(graph: WorkloadGraph, *donated: int) -> int:
    """Bytes of results at the peak; ``donated[i]`` is the output that input i is donated to."""
    donated += (-1,) * (graph.inputs - len(donated))
    inputs = [
        ProgramInput(graph.type_of(i), "parameter", donated=output)
        for i, output in enumerate(donated)
    ]
    memory = peak_memory(graph, inputs)
    assert memory.inputs == {"parameter": sum(item.type.bytes for item in inputs)}
    assert memory.bytes == sum(memory.inputs.values()) + memory.peak
    return memory.peak


def start():
    tables = TableBuilder()
    return tables, GraphBuilder(tables)


def test_a_chain_needs_two_results_at_a_time():
    tables, builder = start()
    value = builder.input(tables.type(ONE))
    for _ in range(5):
        value = made(builder, (value,))
    assert peak(with_tables(builder.finish((value,)), tables.finish())) == 2000


def test_an_elementwise_chain_runs_in_place():
    tables, builder = start()
    value = builder.input(tables.type(ONE))
    for _ in range(5):
        value = made(builder, (value,), role=Role.ELEMENTWISE)
    assert peak(with_tables(builder.finish((value,)), tables.finish())) == 1000


def test_an_op_in_place_that_reads_nothing_has_a_separate_buffer():
    """PyTorch's ``zero_``: there is no operand whose buffer it could take."""
    tables, builder = start()
    builder.input(tables.type(TEN))
    work = Work((WorkItem(Unit.VECTOR, "i8", 1000),), 0, 1000, 0)
    (value,) = builder.compute("aten.zero_.default", Role.OPAQUE, (), (ONE,), work)
    assert peak(with_tables(builder.finish((value,)), tables.finish())) == 1000


@pytest.mark.parametrize(("unit", "expected"), [(Unit.TRANSCENDENTAL, 2000), (Unit.VECTOR, 1000)])
def test_an_elementwise_kernel_leaves_what_is_read_later(unit, expected):
    """A tanh of it has its own buffer; its square is computed again by what reads both (XLA's
    ``InstructionFusion`` duplicates what is cheap and reads one tensor)."""
    tables, builder = start()
    first = made(builder, (builder.input(tables.type(ONE)),))
    work = Work((WorkItem(unit, "i8", 1000),), 1000, 1000, 0)
    (second,) = builder.compute("multiply", Role.ELEMENTWISE, (first,), (ONE,), work)
    third = made(builder, (first, second), role=Role.ELEMENTWISE)
    assert peak(with_tables(builder.finish((third,)), tables.finish())) == expected


def test_what_is_cheap_is_kept_if_its_operand_is_gone_or_a_reader_cannot_compute_it():
    """A square that outlives what it is made of, and one that a sum reads."""
    for role, late in ((Role.ELEMENTWISE, True), (Role.REDUCTION, False)):
        tables, builder = start()
        first = made(builder, (builder.input(tables.type(ONE)),))
        second = made(builder, (first,), role=Role.ELEMENTWISE)
        third = made(builder, (second,) if late else (first, second), role=role)
        last = made(builder, (second, third))
        assert peak(with_tables(builder.finish((last,)), tables.finish())) >= 2000


def test_what_is_needed_later_stays():
    """a, b, c are alive until they are added up: at the sum four results."""
    tables, builder = start()
    value = builder.input(tables.type(ONE))
    parts = [made(builder, (value,)) for _ in range(3)]
    total = made(builder, parts)
    assert peak(with_tables(builder.finish((total,)), tables.finish())) == 4000


def test_a_result_that_is_never_read_is_freed_at_once():
    tables, builder = start()
    value = builder.input(tables.type(ONE))
    made(builder, (value,), TEN)
    value = made(builder, (value,))
    assert peak(with_tables(builder.finish((value,)), tables.finish())) == 10000


def test_a_donated_input_takes_the_output():
    """p' = update(p, g): with p donated only g needs memory."""
    tables, builder = start()
    parameter = builder.input(tables.type(TEN))
    gradient = made(builder, (parameter,))
    updated = made(builder, (parameter, gradient), TEN)
    graph = with_tables(builder.finish((updated,)), tables.finish())
    assert peak(graph, 0) == 1000
    assert peak(graph) == 11000


def test_a_donated_input_that_is_read_later_cannot_take_the_output():
    tables, builder = start()
    parameter = builder.input(tables.type(TEN))
    updated = made(builder, (parameter,), TEN)
    after = made(builder, (parameter,))
    graph = with_tables(builder.finish((updated, after)), tables.finish())
    assert peak(graph, 0) == 11000


def test_an_update_in_place_takes_its_operands_buffer():
    tables, builder = start()
    value = builder.input(tables.type(ONE))
    buffer = made(builder, (value,), TEN)
    for _ in range(4):
        buffer = made(builder, (buffer, value), TEN, Role.UPDATE, aliased=9000)
    assert peak(with_tables(builder.finish((buffer,)), tables.finish())) == 10000


def test_an_input_that_is_not_donated_is_not_overwritten():
    tables, builder = start()
    buffer = builder.input(tables.type(TEN))
    value = made(builder, (buffer,), TEN, Role.UPDATE, aliased=9000)
    graph = with_tables(builder.finish((value,)), tables.finish())
    assert peak(graph) == 10000
    assert peak(graph, 0) == 0


def test_constants_that_were_folded_take_nothing():
    tables, builder = start()
    value = builder.input(tables.type(ONE))
    (zero,) = builder.compute("constant", Role.GENERATE, (), (TEN,), Work((), 0, 0))
    value = made(builder, (value, zero))
    assert peak(with_tables(builder.finish((value,)), tables.finish())) == 1000


@pytest.mark.parametrize("trips", [1, 7, 1000])
def test_a_loop_needs_one_iteration_whatever_its_length(trips):
    """Carried x (made before the loop) and a body x -> a -> b -> x'.

    In the body a and b are alive beside x, and x' takes the place of x, which is no longer read:
    1000 for x outside, 2000 inside.
    """
    tables, body = start()
    value = body.input(tables.type(ONE))
    for _ in range(3):
        value = made(body, (value,))
    outer = GraphBuilder(tables)
    entered = made(outer, (outer.input(tables.type(ONE)),))
    results = outer.loop(Loop(body.finish((value,)), 1, trips), (entered,))
    graph = with_tables(outer.finish(results), tables.finish())
    assert peak(graph) == 3000


def test_a_carried_value_that_is_read_to_the_end_is_held_twice():
    """x' is made before the last read of x: both are alive at the end of an iteration."""
    tables, body = start()
    value = body.input(tables.type(TEN))
    following = made(body, (value,), TEN)
    made(body, (value,), ONE)
    outer = GraphBuilder(tables)
    entered = made(outer, (outer.input(tables.type(ONE)),), TEN)
    results = outer.loop(Loop(body.finish((following,)), 1, 3), (entered,))
    graph = with_tables(outer.finish(results), tables.finish())
    assert peak(graph) == 10000 + 10000 + 1000


def test_residuals_stacked_in_a_loop_are_counted_once():
    """A scan writes 1000 bytes per iteration into a buffer of 10000 that it carries."""
    tables, body = start()
    value, stack = body.input(tables.type(ONE)), body.input(tables.type(TEN))
    value = made(body, (value,))
    stack = made(body, (stack, value), TEN, Role.UPDATE, aliased=9000)
    outer = GraphBuilder(tables)
    entered = outer.input(tables.type(ONE))
    carried = made(outer, (entered,))
    empty = made(outer, (entered,), TEN)
    results = outer.loop(Loop(body.finish((value, stack)), 2, 10), (carried, empty))
    graph = with_tables(outer.finish(results), tables.finish())
    assert peak(graph) == 11000


def looped(tables, outer, operands, carried, made_of):
    """A loop of three iterations whose body's results ``made_of`` makes from its arguments."""
    body = GraphBuilder(tables)
    arguments = [body.input(tables.type(kind)) for kind in carried]
    return outer.loop(Loop(body.finish(made_of(body, arguments)), 2, 3), operands)


def test_a_product_does_not_write_over_the_donated_input_that_it_reads():
    tables, builder = start()
    value = builder.input(tables.type(TEN))
    result = made(builder, (value,), TEN, Role.CONTRACTION)
    assert peak(with_tables(builder.finish((result,)), tables.finish()), 0) == 10000


def test_what_a_loop_reads_throughout_is_not_overwritten_by_what_it_collects():
    """A cache is read and a new one is collected beside it: the donation is of no use meanwhile."""
    tables, outer = start()
    cache = outer.input(tables.type(TEN))
    counter, empty = made(outer, (cache,)), made(outer, (cache,), TEN)

    def body(inside, arguments):
        count, collected, read = arguments
        new = made(inside, (read,))
        return count, made(inside, (collected, new), TEN, Role.UPDATE, aliased=9000)

    results = looped(tables, outer, (counter, empty, cache), (ONE, TEN, TEN), body)
    graph = with_tables(outer.finish((results[1],)), tables.finish())
    assert peak(graph, 0) == 1000 + 10000 + 1000


def test_carried_values_that_begin_with_one_zero_need_a_buffer_each():
    """One is the zero's own, the other a copy."""
    tables, outer = start()
    zero = made(outer, (outer.input(tables.type(ONE)),), TEN)

    def body(inside, arguments):
        return tuple(made(inside, (value,), TEN, Role.ELEMENTWISE) for value in arguments)

    results = looped(tables, outer, (zero, zero), (TEN, TEN), body)
    assert peak(with_tables(outer.finish(results), tables.finish())) == 20000


def test_a_constant_is_never_overwritten():
    tables, outer = start()
    counter = made(outer, (outer.input(tables.type(ONE)),))
    (zero,) = outer.compute("constant", Role.GENERATE, (), (TEN,), Work((), 0, 0))

    def body(inside, arguments):
        return tuple(made(inside, (v,), role=Role.ELEMENTWISE, result=kind)
                     for v, kind in zip(arguments, (ONE, TEN), strict=True))  # fmt: skip

    results = looped(tables, outer, (counter, zero), (ONE, TEN), body)
    assert peak(with_tables(outer.finish(results), tables.finish())) == 11000


def test_a_product_in_a_loop_does_not_write_over_the_carried_value_that_it_reads():
    """x' = x W: both are there at once, whatever the number of iterations."""
    tables, outer = start()
    counter, value = (made(outer, (outer.input(tables.type(ONE)),), kind) for kind in (ONE, TEN))

    def body(inside, arguments):
        return arguments[0], made(inside, (arguments[1],), TEN, Role.CONTRACTION)

    results = looped(tables, outer, (counter, value), (ONE, TEN), body)
    assert peak(with_tables(outer.finish(results), tables.finish())) == 1000 + 2 * 10000
