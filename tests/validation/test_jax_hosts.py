"""Profiles of several hosts: whose devices are which ranks is read, and never guessed."""

from __future__ import annotations

import math
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from flint.converters.profilers.xplane.devices import Devices
from flint.converters.profilers.xplane.observe import observe
from flint.errors import FlintError
from flint.graph.graph import NodeKind
from flint.hlo.messages import parse_module
from flint.post_execution.converting import convert_traces
from flint.validation.validating import validate
from tests.support.children import HUNG, child_environment
from tests.validation.conftest import step_of
from tests.validation.test_gpu_profiles import DATA
from tests.validation.xplanes import Run, field, profile, tpu_profile

pytestmark = pytest.mark.xdist_group("validation-hosts")

HOSTS = 2


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A profile folder of two processes, four devices each, on a mesh in reverse order."""
    place = tmp_path_factory.mktemp("hosts") / "plugins" / "profile" / "run"
    place.mkdir(parents=True)
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port = probe.getsockname()[1]
    script = Path(__file__).parent / "jax_hosts.py"
    runs = [
        subprocess.Popen(
            [
                sys.executable, str(script), str(place), "tests.frontends.jax.steps:mlp",
                str(number), str(HOSTS), str(port),
            ],
            env=child_environment(), stderr=subprocess.PIPE, text=True,
        )
        for number in range(HOSTS)
    ]  # fmt: skip
    for run in runs:
        _, said = run.communicate(timeout=HUNG)
        assert run.returncode == 0, said
    return place


def first_starts(place):
    """Device id -> when it first ran an op, as JAX's own reader of profiles tells."""
    from jax.profiler import ProfileData

    found = {}
    for file in place.glob("*.xplane.pb"):
        for plane in ProfileData.from_file(str(file)).planes:
            for line in plane.lines:
                for event in line.events:
                    stats = dict(event.stats)
                    if "hlo_op" in stats and not event.name.startswith("end:"):
                        device, start = stats["device_ordinal"], int(event.start_ns)
                        found[device] = min(found.get(device, start), start)
    return found


def test_every_host_and_device_is_compared(folder):
    report = validate(step_of("mlp").capture(), [folder.parents[2]])
    assert report.ok, report.differences[:4]
    assert report.ranks == list(range(8))
    assert report.verdict.startswith("agrees: all 88 collectives")
    assert report.edges == 12 * 8


def test_a_rank_is_the_place_of_its_device_in_the_mesh(folder):
    mesh = [int(text) for text in (folder / "devices.txt").read_text().split()]
    starts = first_starts(folder)
    assert set(mesh) == set(starts)
    assert mesh[0] > mesh[-1]  # in reverse order
    trace = observe(folder)
    for rank, device in enumerate(mesh):
        assert trace.start[trace.rank == rank].min() == starts[device]


def test_one_host_of_two_has_its_own_ranks(folder):
    report = validate(step_of("mlp").capture(), [folder / "host0.xplane.pb"])
    assert (report.ok, report.ranks) == (True, [4, 5, 6, 7])
    assert "no trace of ranks 0-3: they are not checked" in report.notes


def test_the_hosts_of_a_run_are_converted_together(folder):
    assert convert_traces([folder.parents[2]]).mesh.size == 8


def test_the_same_host_twice_is_refused(folder, tmp_path):
    for name in ("a", "b"):
        content = (folder / "host0.xplane.pb").read_bytes()
        (tmp_path / f"{name}.xplane.pb").write_bytes(content)
    with pytest.raises(FlintError, match=r"b\.xplane\.pb: has rank \d, like a\.xplane\.pb"):
        observe(tmp_path)


def test_hosts_with_different_programs_are_refused(tmp_path):
    for number, name in enumerate(("gpu_llama", "gpu_resnet")):
        profile(Run(DATA / f"{name}.hlo.pb.gz"), tmp_path / f"{number}.xplane.pb", 4, runs=1)
    with pytest.raises(FlintError, match="differs from that in"):
        observe(tmp_path)


def test_two_runs_are_refused(tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "host.xplane.pb").write_bytes(b"")
    with pytest.raises(FlintError, match="profiles of 2 runs in it; give one"):
        observe(tmp_path)


@pytest.mark.parametrize(("names", "told"), [("01", True), ("ab", False), ("02", False)])
def test_gpus_of_several_hosts_are_identified_by_the_numbers_of_processes(names, told, tmp_path):
    for name in names:
        profile(Run(DATA / "gpu_llama.hlo.pb.gz"), tmp_path / f"{name}.xplane.pb", 4, runs=1)
    if told:
        assert observe(tmp_path).ranks == tuple(range(8))
        return
    with pytest.raises(FlintError, match="which host has which ranks is unknown"):
        observe(tmp_path)


@pytest.mark.parametrize("names", ["01", "ab"])
def test_gpus_of_several_hosts_are_converted_whichever_host_is_which(names, tmp_path):
    """500 ns per kernel on each device; hosts without a number are taken in order."""
    run = Run(DATA / "gpu_llama.hlo.pb.gz")
    for name in names:
        profile(run, tmp_path / f"{name}.xplane.pb", 4, runs=1)
    workload = convert_traces([tmp_path])
    assert workload.options["devices"] == 8
    kernels = [name for name in run.executed() if not name.startswith(("all-", "reduce-scatter"))]
    for program in workload.programs:
        alone = program.graph.kind != NodeKind.COMMUNICATION
        assert program.graph.measured_by_node()[alone].clip(0).sum() == 500 * len(kernels)
    assert any("in the order of their files" in text for text in workload.warnings) == (
        names == "ab"
    )


@pytest.mark.thorough
def test_tpus_of_several_hosts_are_converted(tmp_path):
    """An op takes 100 ns on one host's devices and 300 on the other's."""
    run = Run(DATA / "tpu_pipeline.hlo.pb.gz")
    tpu_profile(run, tmp_path / "host-a.xplane.pb", 2, lambda *_: 100)
    tpu_profile(run, tmp_path / "host-b.xplane.pb", 2, lambda *_: 300)
    workload = convert_traces([tmp_path])
    assert (workload.options["devices"], workload.options["run"]) == (4, 1)
    for program, took in zip(workload.programs, (100, 100, 300, 300), strict=True):
        alone = program.graph.kind != NodeKind.COMMUNICATION
        times = set(program.graph.measured_by_node()[alone].tolist())
        assert times - {-1, 0} == {took}
    with pytest.raises(FlintError, match="which host has which ranks is unknown"):
        observe(tmp_path)


def test_ranks_without_a_profile_run_what_a_profiled_rank_ran(tmp_path):
    """Four of eight devices; a step of theirs is one of all."""
    run = Run(DATA / "gpu_llama.hlo.pb.gz")
    whole, part = tmp_path / "whole.xplane.pb", tmp_path / "part.xplane.pb"
    steps = [convert_traces([profile(run, path, n, runs=1)]) for path, n in ((whole, 8), (part, 4))]
    sizes = [[program.ranks.size for program in workload.programs] for workload in steps]
    assert sizes == [[1] * 8, [2] * 4]
    seconds = [workload.simulate().step_seconds for workload in steps]
    # A device begins 10 ns after the one before.
    assert seconds[0] - seconds[1] == pytest.approx(40e-9)
    assert "ranks without a profile: each runs what a profiled rank ran" in steps[1].warnings


def test_the_devices_of_a_profile_are_those_of_the_default_system(tmp_path):
    """TPUs have a name; JAX describes an MI300X by its 304 compute units and 192 GB."""
    told = {"device_vendor": "AMD", "core_count": 304, "memory_size": 206_141_652_992}
    run = Run(DATA / "gpu_llama.hlo.pb.gz")
    gpus = convert_traces([profile(run, tmp_path / "a.xplane.pb", 8, said=told)])
    run = Run(DATA / "tpu_library.hlo.pb.gz")
    took = lambda *_: 100  # noqa: E731
    [tpus, others] = [
        convert_traces([tpu_profile(run, tmp_path / f"{number}.xplane.pb", 1, took, name=name)])
        for number, name in enumerate(("TPU v6 Lite", "TPU v3"))
    ]
    assert (gpus.usual_system, tpus.usual_system) == ("mi300x-8", "tpu-v6e-pod")
    result = others.simulate(others.usual_system)
    assert any(note.startswith("the profile is of TPU v3: peaks") for note in result.notes)
    assert math.isnan(result.figures.mfu)


@pytest.mark.thorough
def test_an_asynchronous_op_of_a_tpu_takes_until_its_end(tmp_path):
    """Ops take 100 ns, 10 apart, and the wait at the end of an asynchronous one 700.  A copy takes
    both: the core does nothing else then.  A message is on its way from its begin to its end.
    """
    run = Run(DATA / "tpu_pipeline.hlo.pb.gz")
    took = lambda _, name: 700 if "-done" in name else 100  # noqa: E731
    path = tpu_profile(run, tmp_path / "host.xplane.pb", 4, took, ends=True)
    begun, spans, now, copies = {}, set(), 0, 0
    for name in run.executed(ends=True):
        begun[name] = now
        now += took(0, name)
        copies += name.startswith("copy-start")
        if name.startswith("collective-permute-done"):
            spans.add(now - begun[name.replace("-done", "-start")])
        now += 10
    assert min(spans) > 800
    workload = convert_traces([path])
    for program in workload.programs:
        times = [int(time) for time in program.graph.measured_by_node() if time > 0]
        assert set(times) == {100, 800, *spans}
        assert times.count(800) == copies
    # From the first op's begin to the last one's end; 10 ns follow it in the count above.
    assert workload.simulate().step_seconds == pytest.approx((now - 10) / 1e9)


def test_ops_of_a_tpu_are_those_within_a_run_of_the_program(tmp_path):
    run = Run(DATA / "tpu_pipeline.hlo.pb.gz")
    path = tpu_profile(run, tmp_path / "host.xplane.pb", 2, lambda device, _: 100 + 50 * device)
    trace = observe(path)
    assert (trace.backend, trace.ranks, trace.steps) == ("tpu", (0, 1), ("run 0", "run 1"))
    for rank in (0, 1):
        rows = trace.rows(rank, 1)
        assert trace.duration[rows].clip(0).sum() == (100 + 50 * rank) * len(run.executed())


def test_a_program_that_only_one_host_runs_is_left_out(tmp_path):
    """The first host spends most of its time on another one."""
    run, other = Run(DATA / "tpu_pipeline.hlo.pb.gz"), Run(DATA / "tpu_moe.hlo.pb.gz")
    other.module.name = "jit_other"
    mine = [tpu_profile(run, tmp_path / f"{n}.xplane.pb", 1, lambda *_: 10) for n in "ab"]
    alone = tpu_profile(other, tmp_path / "x", 1, lambda *_: 9_000, number=8, begin=1_000_000_000)
    mine[0].write_bytes(mine[0].read_bytes() + alone.read_bytes())
    alone.unlink()
    assert convert_traces([tmp_path]).options["devices"] == 2


def test_devices_are_ranked_by_replica_and_then_by_partition():
    # Two partitions (rows) of three replicas: rank = replica * 2 + partition.
    rows = [[5, 3, 1], [4, 2, 0]]
    packed = b"".join(field(3, field(1, bytes(row))) for row in rows)
    devices = Devices.of(parse_module(field(1, b"module") + field(15, packed)))
    assert devices.ids == (5, 4, 3, 2, 1, 0)
    assert [devices.rank(number) for number in (5, 0, 9)] == [0, 5, 9]
