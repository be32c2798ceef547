"""FLOPs of recorded ops that resize pictures, against counts by hand and our lowerings."""

from __future__ import annotations

import pytest

import flint
from flint.cost.aten_work import work_of
from flint.graph.work import Unit
from flint.post_execution.converting import convert_traces


def test_three_interpolations_of_three_operations_make_a_result():
    """2 x 3 pictures of 8 x 10, and 8 operations for each of 8 rows and 10 columns."""
    found = work_of(
        "aten::upsample_bilinear2d", [[((2, 3, 4, 5), "f16")], [], []], [None, [8, 10], False]
    )
    assert [item.flops for item in found.items] == [480 * 9 + 18 * 8]
    assert found.moved == (2 * 120, 2 * 480)


def test_a_copy_of_the_nearest_computes_nothing_and_its_gradient_adds_up():
    """Four results of one element: three additions."""
    forward = work_of("aten::upsample_nearest2d", [[((2, 3, 4, 5), "f32")], []], [None, [8, 10]])
    assert [item.flops for item in forward.items] == [0]
    sizes = [None, [8, 10], [2, 3, 4, 5]]
    back = work_of("aten::upsample_nearest2d_backward", [[((2, 3, 8, 10), "f32")], [], []], sizes)
    assert [item.flops for item in back.items] == [3 * 120]
    assert back.moved == (4 * 480, 4 * 120)


@pytest.mark.parametrize("values", [[], [None, None, False], [None, [8], False]])
def test_without_the_size_nothing_is_known(values):
    assert (
        work_of("aten::upsample_bilinear2d", [[((2, 3, 4, 5), "f32")], [], []], values).items
        is None
    )


@pytest.mark.thorough
@pytest.mark.parametrize("corners", [False, True])
@pytest.mark.parametrize("mode", ["linear", "nearest", "bilinear", "bicubic", "trilinear"])
def test_what_a_profile_shows_is_what_a_capture_counts(mode, corners, tmp_path):
    """A step on the CPU under the profiler, and the same step captured."""
    torch = pytest.importorskip("torch")
    from tests.cost.resizing import step_of

    step, setup = step_of(mode, corners)
    captured = flint.capture(step, mesh=(1,), axes=("a",), setup=setup, framework="torch").capture()
    with torch.profiler.profile(record_shapes=True) as profiler:
        step(*setup())
    profiler.export_chrome_trace(str(tmp_path / "rank0.json"))
    profile = convert_traces([tmp_path / "rank0.json"])
    assert work(profile, "aten::upsample") == work(captured, "aten.upsample")


def work(workload, start):
    """Operations on numbers with fractions, bytes read and written of each op that resizes."""
    return [
        (
            sum(i.flops for i in node.work.items if i.unit == Unit.VECTOR and i.dtype == "f32"),
            node.work.read,
            node.work.written,
        )
        for node in workload.programs[0].graph
        if node.op.startswith(start)
    ]
