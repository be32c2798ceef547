"""Files of a run's ranks, as users keep them: names, other files beside them, shorter profiles."""

from __future__ import annotations

import json

import pytest

from flint.errors import FlintError, UsageError
from flint.post_execution.converting import convert_traces
from flint.post_execution.rank_names import ranks_of_names
from tests.post_execution.traces import Profile


def profile(rank, steps=1, **info):
    """Steps of 100 us with a kernel that takes 10 us more in each, and an all-reduce."""
    made = Profile(rank, 2, **info)
    for step in range(steps):
        begin = 100 * step
        made.span(f"ProfilerStep#{step}", begin, 100)
        made.work(begin + 10, begin + 20, 10 * (step + 1))
        made.collective(begin + 30, begin + 70, 20)
    return made


def measured(workload):
    """Microseconds of each rank's nodes."""
    programs = sorted(workload.programs, key=lambda program: program.name)
    return [(program.graph.measured_by_node() // 1000).tolist() for program in programs]


def test_ranks_are_compared_in_the_last_step_that_all_of_them_ran(tmp_path):
    """The profile of rank 1 ends a step earlier."""
    files = [
        profile(rank, steps).write(tmp_path / f"rank{rank}.json")
        for rank, steps in ((0, 3), (1, 2))
    ]
    workload = convert_traces(files)
    assert measured(workload) == [[20, 20], [20, 20]]
    assert any("ProfilerStep#1 is converted" in text for text in workload.warnings)


def test_other_json_in_a_folder_of_traces_is_left_out(tmp_path):
    for rank in (0, 1):
        profile(rank).write(tmp_path / f"rank{rank}.json")
    (tmp_path / "config.json").write_text('{"lr": 0.1}')
    workload = convert_traces([tmp_path])
    assert len(workload.programs) == 2
    assert any("config.json" in text for text in workload.warnings)
    with pytest.raises(FlintError, match="neither a Kineto trace"):
        convert_traces([tmp_path / "config.json"])


def unnamed(folder, names):
    """Traces that do not name their ranks, which are in different groups."""
    for number, name in enumerate(names):
        made = profile(number)
        events = {"traceEvents": made.events}
        (folder / name).write_text(json.dumps(events))


def test_numbers_in_the_names_of_files_are_ranks_if_nothing_else_names_them(tmp_path):
    unnamed(tmp_path, ("worker-1_17.json", "worker-0_42.json"))
    workload = convert_traces([tmp_path])
    assert {program.name for program in workload.programs} == {"rank_0", "rank_1"}
    assert any("files' names" in text for text in workload.warnings)
    with pytest.raises(FlintError, match="--strict"):
        convert_traces([tmp_path], strict=True)


def test_files_whose_names_do_not_show_the_rank_are_refused(tmp_path):
    unnamed(tmp_path, ("host_317.json", "host_318.json"))
    with pytest.raises(UsageError, match="both for rank 0"):
        convert_traces([tmp_path])


@pytest.mark.parametrize(
    ("names", "ranks"),
    [
        (["trace_2.json", "trace_0.json", "trace_1.json"], [2, 0, 1]),
        (["n0_g0.json", "n0_g1.json"], [0, 1]),
        (["n0_g1.json", "n1_g0.json"], None),  # two numberings
        (["a0.json", "b1.json"], None),
        (["gpu1.json", "gpu2.json"], None),
    ],
)
def test_a_rank_is_the_only_number_that_counts_the_files(names, ranks):
    assert ranks_of_names(names) == ranks
