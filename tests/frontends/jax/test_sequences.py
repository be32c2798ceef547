"""Steps that call several programs: the same programs in the same order as in a run.

Longer than 300 lines because each of its steps is captured once and looked at from all sides.
"""

from __future__ import annotations

import collections
import itertools

import jax
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import flint
from flint.errors import FlintError
from flint.graph.graph import NodeKind
from flint.host.module_process import ModuleProcess
from flint.passes import apply
from flint.passes.one_of_sequence import ends
from tests.frontends.jax import sequence_steps
from tests.frontends.jax.comparing import executed_bytes
from tests.support.shared import quick

MODULE = "tests.frontends.jax.sequence_steps"
#: Programs of a run that make constants, which a capture computes.
OF_CONSTANTS = {"outside": ("jit_convert_element_type", "jit_broadcast_in_dim")}
#: Bytes of the weights.
WHOLE = 512 * 256 * 4


@pytest.fixture(scope="module")
def captured():
    known = {}

    def get(name):
        if name not in known:
            step = getattr(sequence_steps, name)
            known[name] = step.capture(options={"reduce_scatter": False})
        return known[name]

    return get


def totals_by_program(workload):
    """(kind, groups) -> [calls, result bytes] of rank 0, for each program in order."""
    graph = workload.graph
    bounds = [0, *(ends(graph) + 1).tolist()]
    found = []
    for first, last in itertools.pairwise(bounds):
        totals = collections.defaultdict(lambda: [0, 0])
        for node in range(first, last):
            count(graph, node, 1, totals)
        found.append(dict(totals))
    return found


def count(graph, node, times, totals):
    item = graph[node]
    if item.loop is not None:
        for inner in range(len(item.loop.body)):
            count(item.loop.body, inner, times * item.loop.trip_count, totals)
    if item.communication is not None:
        members = sorted(map(sorted, item.communication.groups.table().tolist()))
        key = item.communication.kind.replace("_", "-"), str(members)
        totals[key][0] += times
        totals[key][1] += times * sum(map(executed_bytes, item.result_types))


def in_bytes(totals):
    """The CPU backend combines all-reduces: of those only the bytes are compared."""
    return {
        key: size if key[0] == "all-reduce" else (calls, size)
        for key, (calls, size) in totals.items()
    }


@pytest.mark.parametrize("name", quick(sequence_steps.STEPS, "zero1", "mapped"))
def test_programs_communicate_in_the_order_and_sizes_of_a_run(name, captured, host_runs):
    workload = captured(name)
    ran = host_runs.programs(f"{MODULE}:{name}")
    assert len(ran) % 2 == 0
    of_a_run = [one for one in ran[: len(ran) // 2] if one[0] not in OF_CONSTANTS.get(name, ())]
    names = [name for name, _ in of_a_run]
    calls = workload.programs[0].calls
    # A device_put within one process copies; in a cluster it is a program of XLA's.
    computed = [n for n, call in enumerate(calls) if call.name != "device_put"]
    ours = totals_by_program(workload)
    assert [in_bytes(ours[n]) for n in computed] == [in_bytes(done) for _, done in of_a_run], names


def test_the_second_program_begins_when_the_first_has_ended(captured):
    graph = apply(captured("zero1").graph, "kernel")
    [first, last] = ends(graph).tolist()
    assert last == len(graph) - 1
    waits, ended = {first}, {first}
    for node in range(first + 1, len(graph)):
        if graph.predecessors(node) & waits:
            waits.add(node)
    for node in range(first, -1, -1):
        if node in ended:
            ended |= graph.predecessors(node)
    assert waits == set(range(first, len(graph)))
    assert ended == set(range(first + 1))


def test_granularities_keep_programs_apart(captured):
    workload = captured("zero1")
    for granularity in ("op", "kernel", "region"):
        graph = apply(workload.graph, granularity)
        [first, last] = ends(graph).tolist()
        talks = np.flatnonzero(graph.kind == NodeKind.COMMUNICATION)
        assert (talks < first).any()
        assert last == len(graph) - 1


def test_kernels_are_those_of_the_programs_alone(captured):
    """A program's kernels do not depend on what runs before it."""
    whole = apply(captured("scanned").graph, "kernel")
    [first, last] = ends(whole).tolist()
    assert last - first == first + 1
    ops = [whole.tables.ops[op] for op in whole.op]
    assert ops[: first + 1] == ops[first + 1 :]


def test_a_value_that_is_read_is_waited_for_and_reported(captured):
    workload = captured("reads")
    [program] = workload.programs
    gradient, momentum = program.calls
    [read] = gradient.reads
    assert read.value == (0, 0)
    assert read.file.endswith("sequence_steps.py")
    # float(value) and its text; a second look at a value costs nothing.
    assert sum(workload.warnings.values()) == 2
    assert all("assumed to be 1.0" in text for text in workload.warnings)
    ops = [node.op for node in workload.graph]
    assert ops.index("program_end") + 1 == ops.index("host_read")
    assert momentum.reads == ()


def test_reading_costs_what_the_option_says(captured):
    plain = captured("reads").simulate().step_seconds
    step = sequence_steps.reads
    costly = step.capture(options={"reduce_scatter": False, "read_seconds": 2e-3})
    assert costly.simulate().step_seconds == pytest.approx(plain + 2e-3, rel=1e-9)


def test_the_gradient_is_backward_and_the_update_is_the_optimizers(captured):
    graph = captured("zero1").graph
    [first, _] = ends(graph).tolist()
    phases = [node.source.phase.name for node in graph]
    reduced = [
        node.source.phase.name for node in graph if node.communication and node.work.flops >= 0
    ]
    assert "BACKWARD" in reduced
    assert "BACKWARD" not in phases[first + 1 :]
    assert "OPTIMIZER" in phases[first + 1 :]


def test_a_step_differentiated_outside_of_a_jit_has_a_forward_and_a_backward_program(captured):
    workload = captured("outside")
    products = [node.source.phase.name for node in workload.graph if node.op == "dot_general"]
    [text] = captured("outside").warnings
    assert "ops on constants" in text
    assert products[0] == "FORWARD"
    assert set(products[1:]) == {"BACKWARD"}


def test_memory_between_programs_is_what_they_donate_and_hold(captured):
    """Weights whole, momentum in 4 parts, 16 rows of x; the update is donated both.

    The gradient is in memory while the update runs, and the update needs nothing beside it: its
    results lie in what it was donated.  The gradient's program needs its result, transposed from
    what was reduced.
    """
    figures = captured("zero1").simulate()
    inputs = WHOLE + WHOLE // 4 + 16 * 512 * 4
    assert figures.peak_memory_bytes >= inputs + WHOLE
    assert figures.peak_memory_bytes <= inputs + 2 * WHOLE + 64 * 256 * 4


def test_buffers_that_are_not_donated_stay_until_the_end():
    def held(w, m, x):
        a = jax.jit(lambda w: w * 2)(w)
        b = jax.jit(lambda a: a * 2)(a)
        c = jax.jit(lambda b: b * 2)(b)
        return c

    def given(w, m, x):
        double = jax.jit(lambda a: a * 2, donate_argnums=0)
        return double(double(jax.jit(lambda w: w * 2)(w)))

    def dropped(w, m, x):
        a = jax.jit(lambda w: w * 2)(w)
        a = jax.jit(lambda a: a * 2)(a)
        return jax.jit(lambda a: a * 2)(a)

    def peak(step):
        return sequence_steps.captured(step).capture().simulate().peak_memory_bytes

    inputs = peak(sequence_steps.captured(lambda w, m, x: w * 2).__wrapped__) - WHOLE
    # Three arrays beside the inputs; one, handed on; two, the last one and what it is made from.
    assert peak(held) - inputs == 3 * WHOLE
    assert peak(given) - inputs == WHOLE
    assert peak(dropped) - inputs == 2 * WHOLE


def test_a_workload_folder_keeps_the_sequence(captured, tmp_path):
    workload = captured("reads")
    workload.save(tmp_path / "out")
    loaded = flint.load(tmp_path / "out")
    [program] = loaded.programs
    assert program.calls == workload.programs[0].calls
    assert (tmp_path / "out/programs/main.gradient.hlo.pb").is_file()
    assert (tmp_path / "out/programs/main.momentum.mlir").is_file()
    assert loaded.simulate().step_seconds == workload.simulate().step_seconds


def test_one_program_called_often_is_compiled_once(captured):
    calls = captured("accumulates").programs[0].calls
    names = [call.name for call in calls]
    assert names == [
        "gradient", "gradient_2", "add", "gradient_3", "add_2", "gradient_4", "add_3", "momentum",
    ]  # fmt: skip
    assert calls[0].module is calls[1].module


def test_one_process_compiles_all_programs(monkeypatch):
    """However many ops the step runs outside of its jits."""
    started = []
    begin = ModuleProcess.__init__

    def counted(self, *arguments, **known):
        started.append(self)
        begin(self, *arguments, **known)

    def ops(number):
        def step(w, m, x):
            for power in range(number):
                x = x ** (power + 2)
            return jax.jit(lambda x: x + 1)(x)

        return sequence_steps.captured(step).capture()

    monkeypatch.setattr(ModuleProcess, "__init__", counted)
    assert len(ops(3).programs[0].calls) == 4
    assert len(ops(12).programs[0].calls) == 13
    assert len(started) == 2


def repeated(w, m, x):
    """Two programs, each with a loop that data end."""
    count = jax.jit(lambda x: x.sum().astype("int32"))(x)
    first = jax.jit(lambda n, w: jax.lax.fori_loop(0, n, lambda _, w: w * 2, w))
    second = jax.jit(lambda n, w: jax.lax.fori_loop(0, n, lambda _, w: w + 1, w))
    return second(count, first(count, w))


@pytest.mark.parametrize(
    ("given", "counts", "unused"),
    [
        pytest.param({"while_0": 4}, [4, 4], [], marks=pytest.mark.thorough),
        ({"while_0": 4, "lambda_3/while_0": 7}, [4, 7], []),
        pytest.param(
            {"lambda_2/while_0": 3, "lambda_3/": 5}, [3, 5], [], marks=pytest.mark.thorough
        ),
        pytest.param(3, [3, 3], [], marks=pytest.mark.thorough),
        ({"": 2, "while_9": 1, "lambda/while_0": 1, "other/while_0": 1}, [2, 2],
         ["lambda/while_0", "other/while_0", "while_9"]),
    ],
)  # fmt: skip
def test_a_trip_count_is_for_all_programs_or_for_the_one_that_it_names(given, counts, unused):
    workload = sequence_steps.captured(repeated).capture(options={"trip_count": given})
    assert [call.name for call in workload.programs[0].calls] == ["lambda", "lambda_2", "lambda_3"]
    assert [loop.trip_count for loop in workload.graph.loops] == counts
    said = [
        text.partition(":")[0]
        for text in workload.warnings
        if "no loop or conditional of this name" in text
    ]
    assert said == unused


def test_ops_outside_of_every_jit_are_one_warning(captured):
    [(text, count)] = captured("eager").warnings.items()
    assert "each a program of its own" in text
    assert count == sum(not call.jitted for call in captured("eager").programs[0].calls)


def test_another_sharding_than_the_next_jit_was_given_is_an_error_as_in_a_run():
    def step(w, m, x):
        wanted = NamedSharding(m.sharding.mesh, P(None, "model"))
        return jax.jit(lambda m: m * 2, in_shardings=wanted)(m + 1)

    with pytest.raises(FlintError, match=r"Sharding passed to jit does not match"):
        sequence_steps.captured(step).capture()


def test_another_sharding_than_a_program_was_compiled_for_is_an_error_as_in_a_run():
    """The compiler chooses the momentum's rows for the gradient, and it is given it whole."""

    def chosen(w, m, x):
        _, g = sequence_steps.gradient(w, x)
        again = sequence_steps.momentum.lower(w, m, jax.ShapeDtypeStruct(g.shape, g.dtype))
        return again.compile()(w, m, g)

    def stated(w, m, x):
        columns = NamedSharding(m.sharding.mesh, P(None, "model"))
        twice = jax.jit(lambda m: m * 2)
        return twice.lower(jax.ShapeDtypeStruct(m.shape, m.dtype, sharding=columns)).compile()(m)

    for step, wanted in ((chosen, "'data'"), (stated, "None, 'model'")):
        with pytest.raises(FlintError, match=f"compiled for .*{wanted}.*disagree"):
            sequence_steps.captured(step).capture()


def test_other_types_than_a_program_was_compiled_for_are_an_error_as_in_a_run():
    def step(w, m, x):
        return sequence_steps.gradient.lower(w, x).compile()(w, x[:32])

    with pytest.raises(FlintError, match=r"compiled for .*64,512.* called with .*32,512"):
        sequence_steps.captured(step).capture()


def test_a_program_that_is_not_compiled_yet_has_no_properties():
    def step(w, m, x):
        lowered = sequence_steps.gradient.lower(w, x)
        assert "stablehlo.dot_general" in lowered.as_text()
        compiled = lowered.compile()
        assert compiled.memory_analysis() is None
        assert compiled.cost_analysis() is None
        return compiled(w, x)

    [program] = sequence_steps.captured(step).capture().programs
    assert not program.calls  # the only program of the step


def test_the_ops_of_a_shard_map_outside_of_jits_have_their_names(captured):
    names = [call.name for call in captured("mapped").programs[0].calls]
    assert [name for name in names if "all_gather" in name or "psum" in name] == [
        "all_gather", "psum",
    ]  # fmt: skip


def test_an_executable_from_before_the_capture_is_refused():
    before = jax.jit(lambda x: x * 2).lower(jax.ShapeDtypeStruct((64, 512), "float32")).compile()
    with pytest.raises(FlintError, match=r"test_sequences.py:\d+: .* compiled before the step"):
        sequence_steps.captured(lambda w, m, x: before(x)).capture()


def test_a_sequence_in_which_nothing_is_sharded_reports_it():
    x = jax.ShapeDtypeStruct((64, 64), "float32")
    step = flint.capture(lambda x: jax.jit(lambda y: y @ y)(jax.jit(lambda x: x + 1)(x)), mesh=(8,))
    workload = step.capture(x)
    assert list(workload.warnings) == ["nothing is sharded: every rank does the whole step"]
