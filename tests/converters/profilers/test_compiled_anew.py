"""A step that is compiled anew for its own results is what ran from its second run on."""

from __future__ import annotations

from pathlib import Path

import pytest

from flint.converters.profilers.xplane.asked_program import chosen_program
from flint.converters.profilers.xplane.events import Event
from flint.hlo import hlo_pb2 as pb


def module(arguments, side):
    """A program of square arguments, whose first one it returns."""
    made = pb.HloProto()
    made.hlo_module.name = "jit_step"
    shapes = made.hlo_module.host_program_shape
    for shape in (*(shapes.parameters.add() for _ in range(arguments)), shapes.result):
        shape.element_type = 11
        shape.dimensions.extend([side, 8])
    return made.SerializeToString()


def runs(number, times, duration, begin):
    """Runs of two ops, the second of which is in a loop of three."""
    return [
        Event(0, -1, begin + 100 * run + place, duration, name, f"jit_step({number})", "cpu", name,
              begin + 100 * run + place + duration, 0, -1)
        for run in range(times)
        for place, name in enumerate(("dot.1", "tanh.2", "tanh.2", "tanh.2"))
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("first", "later", "chosen"),
    [
        ((1, 3), (3, 3), 2),  # the first run takes long, and the weights are then in shards
        ((2, 3), (3, 3), 1),  # it ran more than once
        ((1, 3), (1, 3), 1),  # so did the other not
        ((1, 3), (3, 2), 1),  # another function of this name
    ],
)
def test_the_version_that_ran_on_is_meant(first, later, chosen):
    events = [*runs(1, first[0], 80, 0), *runs(2, later[0], 10, 1000)]
    protos = {"jit_step(1)": module(first[1], 8), "jit_step(2)": module(later[1], 2)}
    label, proto = chosen_program(Path("a.xplane.pb"), events, protos)
    assert label == f"jit_step({chosen})" and proto == protos[label]
