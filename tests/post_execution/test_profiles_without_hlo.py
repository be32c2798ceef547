"""Profiles of GPUs without HLO, in the form of TensorFlow's (2.x, MirroredStrategy).

The form follows a published profile (openxla/xprof, demo/plugins/profile/GPU-multi-worker), of
which the replayed steps of two V100s, 19.87 and 21.31 ms, are those that TensorFlow tells on its
line of steps, 19.865 and 21.310 ms.
"""

from __future__ import annotations

import pytest

from flint.errors import FlintError
from flint.post_execution.converting import convert_traces
from tests.validation.xplanes import Plane, field

#: (op, its begin and time, its launch, kernel, its begin and time) of a step, nanoseconds.
STEP = (
    ("dense/MatMul:MatMul", 1000, 100, 1050, "volta_sgemm_128x64_tn", 1200, 300),
    ("dense/Relu:Relu", 1200, 50, 1220, "Eigen::internal::EigenMetaKernel", 1500, 100),
)


def profile(path, steps):
    """Two devices in some steps, each 10,000 ns after the last, and one that is only set up."""
    host = Plane("/host:CPU")
    planes = [host]
    call = 0
    for device in range(2):
        plane = Plane(f"/device:GPU:{device}")
        thread = f"tf_gpu_private_{device}/7"
        for step in range(steps):
            later = 10_000 * step
            for op, begin, took, launch, kernel, start, time in STEP:
                call += 1
                group = {"correlation_id": call, "group_id": step}
                host.event(thread, op, begin + later, took, is_eager=0, group_id=step)
                host.event(thread, kernel, launch + later, 10, **group)
                plane.event("Stream #13(Compute)", kernel, start + later, time, **group)
                plane.event("TensorFlow Ops", op, start + later, time, group_id=step)
            call += 1
            group = {"correlation_id": call, "group_id": step}
            host.event(thread, "MemcpyD2H", 1300 + later, 5, **group)
            plane.event(
                "Stream #14(MemcpyD2H)", "MemcpyD2H", 1800 + later, 20,
                memcpy_details="size:64 dest:0 async:1", **group,
            )  # fmt: skip
        planes.append(plane)
    idle = Plane("/device:GPU:2")
    host.event("python3", "MemcpyH2D", 500, 5, correlation_id=1000)
    idle.event("Stream #15(MemcpyH2D)", "MemcpyH2D", 600, 10, correlation_id=1000)
    path.write_bytes(b"".join(field(1, plane.encoded()) for plane in [*planes, idle]))
    return path


def test_the_last_step_takes_its_measured_time(tmp_path):
    """From the first kernel's begin at 11,200 to the copy's end at 11,820: 620 ns."""
    workload = convert_traces([profile(tmp_path / "host.xplane.pb", 2)])
    assert workload.mesh.size == 2
    assert workload.simulate().step_seconds == pytest.approx(620e-9)
    assert convert_traces([tmp_path], step="0").simulate().step_seconds == pytest.approx(620e-9)


def test_the_whole_profile_has_all_steps(tmp_path):
    """From 1,200 in the first step to 21,820 in the third."""
    workload = convert_traces([profile(tmp_path / "host.xplane.pb", 3)], step="all")
    assert workload.simulate().step_seconds == pytest.approx(20_620e-9)


def test_kernels_are_of_the_ops_whose_launches_are_within_them(tmp_path):
    workload = convert_traces([profile(tmp_path / "host.xplane.pb", 1)])
    for program in workload.programs:
        graph = program.graph
        names = [graph.tables.ops[op].partition(":")[0] for op in graph.op]
        assert [name for name in names if name in ("MatMul", "Relu")] == ["MatMul", "Relu"]
        assert sorted(graph.measured_by_node().tolist())[-3:] == [20, 100, 300]
        assert graph.bytes_read.max() == 64


def test_a_device_that_no_step_uses_is_left_out_and_counted(tmp_path):
    warnings = convert_traces([profile(tmp_path / "host.xplane.pb", 1)]).warnings
    assert warnings["devices on which nothing ran in any step: they are left out"] == 1


def test_a_profile_in_which_no_device_ran_is_one_clear_line(tmp_path):
    host = Plane("/host:CPU")
    host.event("python3", "dense/MatMul:MatMul", 0, 10)
    path = tmp_path / "host.xplane.pb"
    path.write_bytes(field(1, host.encoded()))
    with pytest.raises(FlintError, match="no HLO ops in it"):
        convert_traces([path])
