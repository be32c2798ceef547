"""Profiles of JAX on host devices: the executed program with the times of its instructions."""

from __future__ import annotations

import json
from pathlib import Path

import jax
import numpy as np
import pytest

from flint.capturing.converting import walk_options
from flint.converters.chakra.check.checker import check
from flint.converters.chakra.read.trace_set import load_trace_set
from flint.converters.profilers.xplane.events import Event, Ran
from flint.converters.profilers.xplane.observe import observe
from flint.converters.profilers.xplane.profile import Read
from flint.converters.profilers.xplane.sequence import _between
from flint.errors import FlintError, UsageError
from flint.graph.graph import NodeKind
from flint.graph.work import Unit
from flint.observed.program_runs import AskedProgram
from flint.observed.rows import ObservedRows
from flint.post_execution.converting import convert_traces
from flint.post_execution.module_times import DeviceRun, ModuleTimes
from flint.post_execution.modules import workload_of_times
from flint.simulation.recording import record
from tests.converters.chakra.consumer import execute
from tests.frontends.jax import sequence_steps
from tests.post_execution.jax_counts import compare_runs, runs_of
from tests.support.children import answer_of
from tests.support.shared import once, quick
from tests.validation.test_gpu_profiles import DATA
from tests.validation.xplanes import Run, profile

pytestmark = pytest.mark.xdist_group("post-execution-jax")

ROOT = Path(__file__).parents[2]
STEPS = ("mlp", "scan", "ring", "turned")


@pytest.fixture(scope="module")
def profiles(host_runs):
    """Profile folders of steps on eight host devices: among them a loop, and rings of messages."""
    return {name: host_runs[f"tests.frontends.jax.steps:{name}"] for name in STEPS}


@pytest.mark.parametrize("name", STEPS)
def test_a_profile_takes_its_measured_times_again(profiles, name):
    workload = convert_traces([profiles[name]])
    [file] = profiles[name].glob("**/*.xplane.pb")
    compare_runs(workload, {d: runs[-1] for d, runs in runs_of(file, f"jit_{name}").items()})
    assert not workload.warnings


#: A step that calls one program twice looks like two steps.
SEVERAL = [name for name in sequence_steps.STEPS if name != "scanned"]


@pytest.mark.parametrize("name", quick(SEVERAL, "zero1", "ahead"))
def test_a_step_of_several_programs_takes_the_time_of_all(name, host_runs):
    """The profile has two runs of the step: the programs of the second one, one after another."""
    folder = host_runs.profile_of_calls(f"tests.frontends.jax.sequence_steps:{name}")
    [file] = folder.glob("**/*.xplane.pb")
    runs = runs_of(file, "")
    assert len({len(found) for found in runs.values()}) == 1
    last = {
        device: [
            event._replace(op=f"{event.op}.{place}")
            for place, run in enumerate(found[len(found) // 2 :])
            for event in run
        ]
        for device, found in runs.items()
    }
    workload = convert_traces([folder])
    compare_runs(workload, last)
    assert not workload.warnings
    assert len(workload.options["programs"]) == len(runs[0]) // 2
    assert np.isnan(workload.simulate().peak_memory_bytes)


def test_who_only_receives_takes_its_measured_time_again(host_runs):
    """The last of a chain of stages may notice late that its data are there."""
    folder = host_runs["tests.post_execution.chain_of_stages:chain"]
    [file] = folder.glob("**/*.xplane.pb")
    compare_runs(
        convert_traces([folder]), {d: runs[-1] for d, runs in runs_of(file, "jit_chain").items()}
    )


def test_what_depends_on_nothing_is_there_from_the_beginning_of_the_step(profiles):
    """A constant is no node of a simulation, so that a delay of its own would be lost."""
    for program in convert_traces([profiles["scan"]]).programs:
        graph = program.graph
        roots = [node for node in range(len(graph)) if not graph.predecessors(node)]
        silent = [node for node in roots if graph.measured_by_node()[node] == 0]
        assert silent and not program.timing.start[silent].any()


def test_a_collective_lasts_from_its_last_members_begin_to_its_first_members_end(profiles):
    """Its members' waits are apart: rank 0's begin to the last one's, and the rest on the way."""
    workload = convert_traces([profiles["mlp"]])
    [file] = profiles["mlp"].glob("**/*.xplane.pb")
    runs = {device: runs[-1] for device, runs in runs_of(file, "jit_mlp").items()}
    first = min(event.start for run in runs.values() for event in run)
    ranks = {rank.program: rank for rank in record(workload).ranks}
    graph = workload.programs[0].graph
    checked = 0
    for node in np.flatnonzero(graph.kind == NodeKind.COMMUNICATION).tolist():
        group = graph[node].communication.groups.members(0).tolist()
        begin = int(workload.programs[0].timing.start[node]) + first
        [name] = [event.op for event in runs[0] if event.start == begin]
        members = [[e for e in runs[rank] if e.op == name] for rank in group]
        assert {len(found) for found in members} == {1}  # no loop
        last = max(event.start for [event] in members) - first
        ended = min(event.end for [event] in members) - first
        ran = ranks["rank_0"]
        [place] = np.flatnonzero(ran.unrolled.template[ran.instance] == node)
        assert ran.start[place] == last * 1000
        assert ran.end[place] == max(last, ended) * 1000
        checked += 1
    assert checked >= 4


def test_modelled_communication_and_no_host_take_the_place_of_what_was_measured(profiles):
    workload = convert_traces([profiles["mlp"]])
    kernels = max(
        int(p.graph.measured_by_node()[p.graph.kind != 1].clip(0).sum()) for p in workload.programs
    )
    assert workload.simulate(host="none").step_seconds < workload.simulate().step_seconds
    result = workload.simulate("dgx-h100", communication="modelled", host="none")
    assert (result.communication, result.host) == ("modelled", "none")
    assert kernels / 1e9 <= result.step_seconds < workload.simulate(host="none").step_seconds


def test_collectives_have_the_groups_and_sizes_of_the_program(profiles):
    workload = convert_traces([profiles["mlp"]])
    trace = observe(profiles["mlp"])
    rows = trace.rows(0, 1)
    facts = [trace.facts[op] for op in trace.op[rows]]
    seen = sorted((f.kind.replace("-", "_"), f.bytes, f.group) for f in facts if f.kind.collective)
    nodes = workload.programs[0].graph
    items = [node.communication for node in nodes if node.kind == NodeKind.COMMUNICATION]
    mine = sorted((c.kind, c.bytes_in, tuple(sorted(c.groups.members(0)))) for c in items)
    assert mine == seen and len(mine) >= 4


def test_its_traces_run_to_the_end_on_all_ranks(profiles, tmp_path):
    convert_traces([profiles["scan"]]).save(tmp_path / "out")
    assert check(tmp_path / "out").ok
    assert execute(load_trace_set(tmp_path / "out")).complete


def test_nodes_have_their_source_lines(profiles):
    workload = convert_traces([profiles["mlp"]])
    graph = workload.programs[0].graph
    files = {node.source.file for node in graph} - {""}
    assert {Path(file).name for file in files} == {"steps.py"}
    lines = {node.source.line for node in graph if node.source.file}
    text = (ROOT / "tests" / "frontends" / "jax" / "steps.py").read_text().splitlines()
    assert max(lines) <= len(text) and np.min(list(lines)) > 1


def test_a_run_that_is_not_there_is_named(profiles):
    with pytest.raises(UsageError, match="has the runs 0 to 1"):
        convert_traces([profiles["mlp"]], step="2")


def test_a_loop_whose_count_depends_on_data_is_named_with_its_source_line():
    """As in a profile; its one event is that of an instruction that no program has."""

    def search(x):
        return jax.lax.while_loop(lambda x: x.sum() < 3, jax.numpy.sin, x)

    compiled = jax.jit(search).lower(jax.numpy.ones(4)).compile()
    [module] = compiled.runtime_executable().hlo_modules()
    proto = module.as_serialized_hlo_module_proto()
    run = DeviceRun(0, 0, ["other"], *np.zeros((5, 1), np.int64))
    times = ModuleTimes("a profile", proto, (run,), frozenset(), "CPU", 0)
    line = search.__code__.co_firstlineno + 1
    with pytest.raises(FlintError, match=rf"test_jax_profiles.py:{line}\)"):
        workload_of_times([times], mesh=None, axes=None, options=walk_options())


def test_loops_and_branches_that_data_decide_are_those_of_the_run(host_runs):
    folder = host_runs["tests.post_execution.decided_by_data:decided"]
    workload = convert_traces([folder])
    [file] = folder.glob("**/*.xplane.pb")
    compare_runs(workload, {d: runs[-1] for d, runs in runs_of(file, "jit_decided").items()})
    assert not workload.warnings
    for program in workload.programs:
        products = program.graph.work_unit == Unit.MATMUL
        assert program.graph.work_flops[products].tolist() == [2 * 8 * 32 * 32] * 28


def test_a_given_trip_count_takes_precedence_over_that_of_the_run(host_runs):
    folder = host_runs["tests.post_execution.decided_by_data:decided"]
    workload = convert_traces([folder], trip_count={"while_0": 6})
    [text] = [text for text in workload.warnings if "more or less often" in text]
    assert workload.warnings[text] > 0


def test_an_op_that_runs_one_kernel_several_times_has_the_time_of_all(tmp_path):
    """Three of 500 ns each, 100 apart; a run begins with its first op's kernel, so that has one."""
    run = Run(DATA / "gpu_resnet.hlo.pb.gz")
    first, *others = run.executed()
    run.executed = lambda: [first, *(name for name in others for _ in range(3))]
    workload = convert_traces([profile(run, tmp_path / "g.xplane.pb", 1, runs=1)])
    kernels = [name for name in run.executed() if not name.startswith(("all-", "reduce-scatter"))]
    for program in workload.programs:
        alone = program.graph.kind != NodeKind.COMMUNICATION
        assert program.graph.measured_by_node()[alone].clip(0).sum() == 500 * len(kernels)
    assert not any("more or less often" in text for text in workload.warnings)


def test_a_profile_of_jax_comes_alone(profiles):
    with pytest.raises(UsageError, match="give only this one"):
        convert_traces([profiles["mlp"], profiles["scan"]])


#: Bytes by which XLA counts more than moves, beside tables of addresses: of a gather in a fusion
#: the whole operand, 1,000 rows of 128 B; Flint counts the 64 that are read.
WHOLE = {"lookup": 128 * (1_000 - 64)}

#: Comparisons of loops' counters, which XLA counts and does not run: of two integers of 4 bytes, to
#: a bool.  One loop forward and one backward; XLA's CPU backend makes a loop of each scatter.
CONDITIONS, COMPARED = {"layers": 2, "lookup": 1, "convolution": 1}, 4 + 4 + 1


@pytest.fixture(scope="module")
def costed(tmp_path_factory):
    """What XLA's cost analysis says of models, and the folder of their profiles."""

    def profile(folder):
        answer = answer_of(Path(__file__).with_name("costed_models.py"), folder, devices=1)
        (folder / "costs.json").write_text(json.dumps(answer))

    folder = once(tmp_path_factory, "costed-models", profile)
    return json.loads((folder / "costs.json").read_text()), folder


@pytest.mark.thorough
@pytest.mark.parametrize(
    "name", ["mlp", "attention", "norm", "ordered", "convolution", "lookup", "layers"]
)
def test_an_executed_program_has_the_cost_that_xla_counts(name, costed):
    """XLA counts a body once, and 8 bytes for each entry of a tuple, of which nothing is moved."""
    costs, folder = costed
    xla = costs[name]
    [program] = convert_traces([folder / name]).programs
    graph = program.graph
    once = np.unique(np.stack([graph.source, graph.op]), axis=1, return_index=True)[1]
    flops = int(graph.flops_by_node()[once].sum())
    moved = int((graph.bytes_read + graph.bytes_written)[once].sum())
    assert flops == xla["flops"] - CONDITIONS.get(name, 0)
    compared = COMPARED * CONDITIONS.get(name, 0)
    assert moved == xla["bytes"] - 8 * xla["entries"] - WHOLE.get(name, 0) - compared


@pytest.mark.thorough
def test_a_step_that_was_measured_as_a_whole_has_no_range(costed):
    """One device: nothing is communicated, and so nothing modelled."""
    workload = convert_traces([costed[1] / "mlp"])
    result = workload.simulate()
    assert (result.spread, workload.options["device"]) == (None, "CPU")
    assert np.isnan(result.figures.mfu)  # of no H100


class Moment(int):
    """A moment that counts how often it is compared."""

    compared = 0

    def __lt__(self, other):
        Moment.compared += 1
        return int(self) < int(other)

    def __gt__(self, other):
        Moment.compared += 1
        return int(self) > int(other)


def test_the_programs_of_a_step_are_found_by_a_few_comparisons_for_each_event():
    """Not by comparing each event with all others: a loop may be 300,000 of them."""
    programs = ["jit_step(1)"] + 2 * ["jit_clip(2)"] + ["jit_step(1)"]
    events = [
        Event(0, at, Moment(at), 1, "", programs[at % 4], "", "", at + 1, 0, -1)
        for at in range(4_000)
    ]
    read = Read(ObservedRows(""), [], [Ran(b"", events, "")])
    assert _between(read, AskedProgram("jit_step"), 2_000) == [AskedProgram("jit_clip")]
    assert Moment.compared < 10 * len(events)
