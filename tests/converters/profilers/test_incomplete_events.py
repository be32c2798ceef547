"""Events of a trace that lack a part: what is concluded, and that it is told."""

from __future__ import annotations

import pytest

from flint.converters.profilers.kineto.begin_end import ALONE
from flint.converters.profilers.kineto.gathering import UNTIMED
from flint.converters.profilers.kineto.observe import linked, observe
from flint.converters.profilers.kineto.rows import DEVICES
from tests.converters.profilers.test_readers import event, written


def without(name, one):
    return {key: value for key, value in one.items() if key != name}


def test_events_without_a_duration_are_counted_and_told(tmp_path):
    path = written(
        tmp_path / "rank0.json",
        [
            event("aten::mm", 10, 10, **{"External id": 1}),
            without("dur", event("aten::add", 30, 10, **{"External id": 2})),
            without(
                "dur", event("gemm", 40, 7, "kernel", device=0, stream=7, **{"External id": 1})
            ),
            without("dur", event("span", 0, 7, "Trace")),  # not in use
        ],
    )
    trace = observe(path)
    assert trace.notes[UNTIMED] == 2
    assert trace.duration.tolist() == [0, 0]


def kernels(*devices):
    return [
        event("gemm", 40 + 10 * place, 7, "kernel", **{} if device is None else {"device": device})
        for place, device in enumerate(devices)
    ]


@pytest.mark.parametrize(
    ("devices", "several"), [((3, None), 0), ((None, None), 0), ((3, 4, None), 3)]
)
def test_kernels_that_name_no_device_ran_on_the_only_one(devices, several, tmp_path):
    launch = event("aten::mm", 10, 10)
    path = written(tmp_path / "rank0.json", [launch, *kernels(*devices)])
    trace = observe(path)
    assert [note for note in trace.notes if "devices" in note] == (
        [DEVICES.format(several)] if several else []
    )


def test_a_kernel_without_arguments_is_on_the_stream_of_its_line(tmp_path):
    bare = without("args", event("gemm", 90, 7, "kernel", thread=7))
    path = written(
        tmp_path / "rank0.json",
        [event("aten::mm", 10, 10), event("gemm", 40, 7, "kernel", device=3, stream=7), bare],
    )
    [(_, links)] = linked(path)
    assert len(set(links.kernel_stream.tolist())) == 1


def halves(one):
    """The same event as two."""
    end = {key: one[key] for key in ("name", "tid")} | {"ph": "E", "ts": one["ts"] + one["dur"]}
    return without("dur", one) | {"ph": "B"}, end


WHOLE = [
    event("ProfilerStep#3", 0, 100, "user_annotation"),
    event("aten::linear", 10, 30, **{"External id": 1}),
    event("aten::mm", 10, 20.5, **{"External id": 2, "Input Dims": [[4, 8], [8, 2]]}),
    event("aten::t", 10.25, 0, thread=2, **{"External id": 3}),
    event("gemm", 50, 7, "kernel", thread=7, device=0, stream=7, **{"External id": 2}),
]


def columns(trace):
    return {name: getattr(trace, name).tolist() for name in ("op", "parent", "start", "duration")}


@pytest.mark.parametrize("mixed", [False, True], ids=["all as two", "kernels as one"])
def test_begins_and_ends_are_the_same_as_whole_events(mixed, tmp_path):
    """In the file, events of a thread may have any order except at one moment."""
    opened, closed = zip(*map(halves, WHOLE[:-1] if mixed else WHOLE), strict=True)
    as_two = [*reversed(closed), *opened, *(WHOLE[-1:] if mixed else [])]
    as_two.remove(closed[3])
    as_two.append(closed[3])  # which begins at the same moment
    expected = observe(written(tmp_path / "rank0.json", WHOLE))
    found = observe(written(tmp_path / "rank0.json", as_two))
    assert columns(found) == columns(expected)
    assert (found.facts, found.steps, found.notes) == (
        expected.facts, expected.steps, expected.notes
    )  # fmt: skip


def test_begins_without_an_end_are_counted_and_left_out(tmp_path):
    (begun, _), (_, ended) = halves(WHOLE[1]), halves(WHOLE[3])
    trace = observe(written(tmp_path / "rank0.json", [begun, ended, *halves(WHOLE[2])]))
    assert [facts.name for facts in trace.facts] == ["aten::mm"]
    assert trace.notes[ALONE] == 2


def test_the_end_of_an_event_may_bring_its_arguments(tmp_path):
    begin, end = halves(event("aten::mm", 1, 2, **{"External id": 1}))
    end["args"] = {"Input Dims": [[4, 8], [8, 2]], "Input type": ["float", "float"]}
    [facts] = observe(written(tmp_path / "rank0.json", [begin, end])).facts
    assert facts == observe(written(tmp_path / "rank0.json", [
        event("aten::mm", 1, 2, **begin["args"], **end["args"])
    ])).facts[0]  # fmt: skip
