"""Steps whose functions run on different devices: as XLA partitions each, with messages between."""

from __future__ import annotations

import subprocess
import sys

import pytest

from flint.converters.profilers.xplane.times import GROUPS
from flint.errors import UsageError
from flint.post_execution.converting import convert_traces
from flint.simulation.running import simulate
from flint.validation.validating import validate
from flint.workload.loading import load
from tests.frontends.jax.programs.different_devices import (
    CONDITIONAL,
    KEYS,
    LEARNERS,
    NOT_MOVED,
    ONE_EACH,
    PIPELINE,
    READS,
)
from tests.frontends.jax.programs.really_run import instructions, partitioned
from tests.frontends.jax.programs.test_against_runs import command
from tests.post_execution.jax_counts import compare_runs, runs_of
from tests.support.children import HUNG, child_environment, run_script
from tests.support.shared import quick


def captured(text, folder, devices=8):
    """The workload of a program, and what was said."""
    program = folder / "p.py"
    program.write_text(text)
    run = command(program, devices=devices, options=("-o", folder / "out"))
    assert run.returncode == 0, run.stderr
    return load(folder / "out"), run.stderr


def op_of(graph, node):
    return graph.tables.ops[graph.op[node]]


def messages(program):
    """(sends or receives, source, target, bytes) of a program in order."""
    graph, found = program.graph, []
    own = set(program.ranks.array().tolist())
    for node in range(len(graph)):
        if op_of(graph, node) in ("send", "recv"):
            item = graph.tables.communications[graph.detail[node]]
            pairs = enumerate(item.permutation.target.tolist())
            side = 0 if item.kind == "send" else 1
            found += [
                (item.kind, *pair, item.bytes_in or item.bytes_out)
                for pair in pairs
                if pair[1] >= 0 and pair[side] in own
            ]
    return found


def test_each_stage_is_compiled_for_its_own_mesh_as_in_a_run(tmp_path):
    workload, _ = captured(PIPELINE, tmp_path)
    real = partitioned(tmp_path / "p.py", tmp_path)
    own = [[call for call in program.calls if call.jitted] for program in workload.programs]
    assert [[call.name for call in calls] for calls in own] == [["layer", "backward"], ["losses"]]
    for call in (*own[0], *own[1]):
        assert instructions(call.module[0]) == instructions(real[call.name]), call.name
    assert [str(program.ranks) for program in workload.programs] == ["0-3", "4-7"]
    assert workload.mesh.axes == ("submesh", "data")


def test_what_moves_between_meshes_are_messages_of_each_device_s_part(tmp_path):
    first, last = captured(PIPELINE, tmp_path)[0].programs
    part = 64 * 256 * 4 // 4  # bytes of the rows of one of four devices, f32
    there = [(n, n + 4, part) for n in range(4)]
    back = [(n + 4, n, part) for n in range(4)]
    assert messages(first) == [("send", *m) for m in there] + [("recv", *m) for m in back]
    assert messages(last) == [("recv", *m) for m in there] + [("send", *m) for m in back]


def test_layers_on_one_device_each_are_ranks_that_pass_on_what_they_make(tmp_path):
    workload, said = captured(ONE_EACH, tmp_path, devices=5)
    assert "uses 4 devices, and the cluster has 5" in said
    assert [str(program.ranks) for program in workload.programs] == ["0", "1", "2", "3"]
    product = 2 * 64 * 256 * 256  # of x @ w; the gradients are two more, and the same one again
    for program in workload.programs:
        graph = program.graph
        flops = graph.flops_by_node()
        products = [flops[n] for n in range(len(graph)) if op_of(graph, n) == "dot_general"]
        assert products == [product] * 4
    size = 64 * 256 * 4
    expected = [
        [("send", 0, 1, size), ("recv", 1, 0, size)],
        [("recv", 0, 1, size), ("send", 1, 2, size), ("recv", 2, 1, size), ("send", 1, 0, size)],
        [("recv", 1, 2, size), ("send", 2, 3, size), ("recv", 3, 2, size), ("send", 2, 1, size)],
        [("recv", 2, 3, size), ("send", 3, 2, size)],
    ]
    assert [messages(program) for program in workload.programs] == expected


def test_an_actor_s_device_gets_the_learners_parameters_from_the_last_of_them(tmp_path):
    actor, learners = captured(LEARNERS, tmp_path)[0].programs
    assert [call.name for call in actor.calls if call.jitted] == ["act", "act_2", "act_3"]
    assert [call.name for call in learners.calls if call.jitted] == ["learn"]
    part = 28 * 512 * 4 // 7  # of what the actor has made, for each of seven learners
    sent = [("send", 0, n, part) for n in range(1, 8)]
    parameters = 7, 0, 512 * 512 * 4  # the last device that has all of them: JAX's choice
    assert messages(actor) == [*sent * 3, ("recv", *parameters)]
    assert sorted(messages(learners)) == sorted(
        [("recv", *m[1:]) for m in sent * 3] + [("send", *parameters)]
    )


def profiled(text, end, tmp_path):
    """The profile of a program, until some of its arrays are there."""
    begin = "jax.profiler.start_trace('profile')\nfor _ in range(4):"
    run = text.replace("for _ in range(4):", begin, 1)
    run += f"jax.block_until_ready([{end}])\njax.profiler.stop_trace()\n"
    (tmp_path / "run.py").write_text(f"import os\nos.chdir({str(tmp_path)!r})\n{run}")
    run_script(tmp_path / "run.py", devices=8)
    return tmp_path / "profile"


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("text", "end"),
    [
        pytest.param(PIPELINE, "w", id="pipeline"),
        pytest.param(ONE_EACH, "ws", id="one each", marks=pytest.mark.thorough),
    ],
)
def test_each_function_is_compared_with_its_runs_on_its_own_devices(text, end, tmp_path):
    workload, _ = captured(text, tmp_path)
    report = validate(workload, [profiled(text, end, tmp_path)])
    assert report.ok, report.verdict
    assert report.ranks == list(range(workload.mesh.size))


#: Programs, what they make last, and how often their functions run in a step.
REPLAYED = {
    "pipeline": (PIPELINE, "w, v", {"jit_layer": 1, "jit_losses": 1, "jit_backward": 1}),
    "one each": (ONE_EACH, "ws", {"jit_forward": 1, "jit_backward": 1}),
    "learners": (LEARNERS, "p", {"jit_act": 3, "jit__multi_slice": 6, "jit_learn": 1}),
}


@pytest.mark.parametrize("name", quick(list(REPLAYED), "learners"))
def test_a_profile_has_all_devices_in_the_time_that_they_took(name, tmp_path):
    """Of each group of devices the last step; the learners' has three of the actor's."""
    text, end, functions = REPLAYED[name]
    path = profiled(text, end, tmp_path)
    workload = convert_traces([path])
    [file] = path.glob("**/*.xplane.pb")
    runs = {}
    for function, times in functions.items():
        for device, found in runs_of(file, function).items():
            runs.setdefault(device, []).extend(
                event._replace(op=f"{function}.{place}.{event.op}")
                for place, run in enumerate(found[-times:])
                for event in run
            )
    runs = {device: sorted(events) for device, events in runs.items()}
    compare_runs(workload, runs)
    assert workload.mesh.size == len(runs)
    [warning] = workload.warnings
    assert warning.startswith(GROUPS)
    with pytest.raises(UsageError, match="a mesh of 16 devices"):
        convert_traces([path], mesh=(2, 8), axes=("stage", "data"))
    assert convert_traces([path], mesh=(len(runs), 1)).mesh.shape == (len(runs), 1)


@pytest.mark.parametrize(
    "text", (PIPELINE, ONE_EACH, LEARNERS), ids=("pipeline", "one each", "learners")
)
def test_such_a_step_can_be_simulated(text, tmp_path):
    workload, _ = captured(text, tmp_path)
    assert simulate(workload, "dgx-h100").step_seconds > 0


@pytest.mark.thorough
def test_an_array_that_has_not_been_moved_stops_the_capture_as_a_run(tmp_path):
    program = tmp_path / "p.py"
    program.write_text(NOT_MOVED)
    real = subprocess.run(
        [sys.executable, str(program)], env=child_environment(8), cwd=tmp_path,
        capture_output=True, text=True, timeout=HUNG, check=False,
    )  # fmt: skip
    assert "Received incompatible devices for jitted computation" in real.stderr
    run = command(program, options=("-o", tmp_path / "out"))
    assert run.returncode == 1
    assert "p.py:25: losses is called with an array of shape (64, 256)" in run.stderr
    assert "Received incompatible devices for jitted computation" in run.stderr


@pytest.mark.thorough
def test_a_random_key_moves_with_both_of_its_numbers(tmp_path):
    first, _ = captured(KEYS, tmp_path)[0].programs
    sent = [("send", n, n + 4, 2 * 4) for n in range(4)]
    assert messages(first) == sent + [("recv", n + 4, n, 2 * 4) for n in range(4)]


def test_devices_whose_work_the_host_starts_when_it_has_read_a_value_wait_for_it(tmp_path):
    workload, said = captured(READS, tmp_path)
    assert "messages of their size stand for its waiting" in said
    first, last = workload.programs
    assert messages(first) == [("send", n, n + 4, 4) for n in range(4)]  # the loss, an f32
    assert messages(last) == [("recv", n, n + 4, 4) for n in range(4)]
    graph = last.graph
    names = [op_of(graph, node) for node in range(len(graph))]
    assert names[:2] == ["recv", "program_end"]
    behind, open_ = set(), [names.index("dot_general")]
    while open_:
        behind |= (before := graph.predecessors(open_.pop()))
        open_ += before
    assert {0, 1} <= behind
    # The second stage ends after the first one, and not beside it.
    both = simulate(workload, "dgx-h100")
    assert both.step_seconds > 1.5 * max(one.figures.compute_seconds for one in both.programs)


def test_a_conditional_that_depends_on_the_device_is_refused_by_its_line(tmp_path):
    program = tmp_path / "p.py"
    program.write_text(CONDITIONAL)
    run = command(program, options=("-o", tmp_path / "out"))
    assert run.returncode == 1
    assert "p.py:16: some has a conditional that depends on the device" in run.stderr
