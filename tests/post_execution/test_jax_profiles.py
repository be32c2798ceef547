"""Profiles of JAX on host devices: the executed program with the times of its instructions."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

from flint.converters.chakra.check.checker import check
from flint.converters.chakra.read.trace_set import load_trace_set
from flint.converters.profilers.xplane.observe import observe
from flint.errors import UsageError
from flint.graph.graph import NodeKind
from flint.post_execution.converting import convert_traces
from tests.converters.chakra.consumer import execute
from tests.support.children import answer_of
from tests.support.shared import once

pytestmark = pytest.mark.xdist_group("post-execution-jax")

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def profiles(host_runs):
    """Profile folders of an MLP and of a scan over layers, on eight host devices."""
    return {name: host_runs[f"tests.frontends.jax.steps:{name}"] for name in ("mlp", "scan")}


def spent(name, folder, step):
    """Nanoseconds of each op's name over all devices in a run, as the reader of profiles has it."""
    from jax.profiler import ProfileData

    [file] = folder.glob("**/*.xplane.pb")
    found = defaultdict(list)
    for plane in ProfileData.from_file(str(file)).planes:
        for line in plane.lines:
            for event in line.events:
                stats = dict(event.stats)
                if "hlo_op" in stats and not event.name.startswith("end:"):
                    key = stats["hlo_module"], stats["device_ordinal"], stats["run_id"]
                    found[key].append((event.start_ns, event.duration_ns, stats["hlo_op"]))
    by_device = defaultdict(list)
    for (module, device, _), events in found.items():
        by_device[module, device].append(sorted(events))
    total = defaultdict(int)
    for (module, _), runs in by_device.items():
        if module.startswith(f"jit_{name}"):
            for _, duration, op in sorted(runs)[step]:
                total[op] += int(duration)
    return total


def measured(workload):
    """Nanoseconds of one rank over the whole step, bodies as often as they run."""
    return sum(
        int(graph.measured_by_node().clip(0).sum()) * times
        for graph, times in workload.graph.walk()
    )


@pytest.mark.parametrize("name", ["mlp", "scan"])
def test_the_times_of_all_instructions_are_there(profiles, name):
    """Of eight devices the mean; a while's own event encloses those of its body."""
    workload = convert_traces([profiles[name]])
    found = spent(name, profiles[name], -1)
    expected = sum(time for op, time in found.items() if not op.startswith("while")) / 8
    count = len(found)
    assert abs(measured(workload) - expected) <= 4 * count  # a nanosecond per mean and iteration
    assert not workload.warnings


def test_collectives_have_the_groups_and_sizes_of_the_program(profiles):
    workload = convert_traces([profiles["mlp"]])
    trace = observe(profiles["mlp"])
    rows = trace.rows(0, 1)
    facts = [trace.facts[op] for op in trace.op[rows]]
    seen = sorted((f.kind.replace("-", "_"), f.bytes, f.group) for f in facts if f.kind.collective)
    items = [node.communication for node in workload.graph if node.kind == NodeKind.COMMUNICATION]
    mine = sorted((c.kind, c.bytes_in, tuple(sorted(c.groups.members(0)))) for c in items)
    assert mine == seen and len(mine) >= 4


def test_its_traces_run_to_the_end_on_all_ranks(profiles, tmp_path):
    convert_traces([profiles["scan"]]).save(tmp_path / "out")
    assert check(tmp_path / "out").ok
    assert execute(load_trace_set(tmp_path / "out")).complete


def test_nodes_have_their_source_lines(profiles):
    workload = convert_traces([profiles["mlp"]])
    files = {node.source.file for node in workload.graph} - {""}
    assert {Path(file).name for file in files} == {"steps.py"}
    lines = {node.source.line for node in workload.graph if node.source.file}
    text = (ROOT / "tests" / "frontends" / "jax" / "steps.py").read_text().splitlines()
    assert max(lines) <= len(text) and np.min(list(lines)) > 1


def test_a_run_that_is_not_there_is_named(profiles):
    with pytest.raises(UsageError, match="has the runs 0 to 1"):
        convert_traces([profiles["mlp"]], step="2")


def test_a_profile_of_jax_comes_alone(profiles):
    with pytest.raises(UsageError, match="give only this one"):
        convert_traces([profiles["mlp"], profiles["scan"]])


#: Bytes by which XLA counts more than moves, beside tables of addresses.  It counts the operand and
#: the result of a scatter whole, and the operand of a gather in a fusion; Flint counts the places.
#: The pool's gradient: 4,096 places of 4 x 16 x 16 x 16; the lookup's: 64 of 1,000 rows of 128 B.
#: A loop's condition runs once more than its body, which XLA does not count: two scalars of 4 bytes
#: are read and 1 byte is written, and one comparison is made, in each of two loops.
WHOLE = {
    "convolution": 2 * 4 * (16_384 - 4_096),
    "lookup": 3 * 128 * (1_000 - 64),
    "layers": -2 * 9,
}
COMPARISONS = {"layers": 2}


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
    graphs = [graph for graph, _ in convert_traces([folder / name]).graph.walk()]
    flops = sum(int(graph.flops_by_node().sum()) for graph in graphs)
    moved = sum(int((graph.bytes_read + graph.bytes_written).sum()) for graph in graphs)
    assert flops == xla["flops"] + COMPARISONS.get(name, 0)
    assert moved == xla["bytes"] - 8 * xla["entries"] - WHOLE.get(name, 0)


@pytest.mark.thorough
def test_a_step_that_was_measured_as_a_whole_has_no_range(costed):
    """One device: nothing is communicated, and so nothing modelled."""
    workload = convert_traces([costed[1] / "mlp"])
    result = workload.simulate()
    assert (result.spread, workload.options["device"]) == (None, "CPU")
    assert np.isnan(result.figures.mfu)  # of no H100
