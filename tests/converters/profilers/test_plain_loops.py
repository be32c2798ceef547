"""Steps that neither a mark nor an optimizer ends, as PyTorch runs and records them."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from flint.converters.profilers.repeats import steps_of
from flint.observed.columns import REPEATED
from flint.observed.reading import read_trace
from flint.post_execution.converting import convert_traces
from tests.converters.profilers.plain_loops import LOOPS
from tests.support.children import run_script
from tests.support.shared import once

#: Each iteration draws one.
DRAWN = ("aten::rand", "aten::randn")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    script = Path(__file__).with_name("plain_loops.py")
    return once(
        tmp_path_factory,
        "plain-loops",
        lambda folder: run_script(script, folder, imported="torch"),
    )


@pytest.mark.parametrize("form", ["", "_et"])
@pytest.mark.parametrize("loop", LOOPS, ids=lambda loop: loop.__name__)
def test_a_step_is_an_iteration_of_the_loop(loop, form, folder):
    trace = read_trace(folder / f"{loop.__name__}{form}.json")
    assert len(trace.steps) == LOOPS[loop]
    drawn = [fact.name in DRAWN for fact in trace.facts]
    counts = [sum(drawn[op] for op in trace.op[trace.step == n]) for n in range(LOOPS[loop])]
    whole = sum(drawn[op] for op in trace.op)
    assert counts == [whole // LOOPS[loop]] * LOOPS[loop]


def test_the_last_iteration_is_converted_and_a_note_says_of_how_many(folder):
    workload = convert_traces([folder / "decoding_et.json"])
    [note] = [text for text in workload.warnings if text.startswith(REPEATED)]
    assert "step#4 of 5 is converted" in note
    kept = [node.op for node in workload.programs[0].graph]
    assert kept.count("aten::addmm") == 2 * 4 + 1  # four layers and the head


@pytest.mark.parametrize(
    ("ops", "found"),
    [
        ("eLLh" * 3, [0, 4, 8, 12]),
        ("x" + "LLLL" + "h", []),
        ("eLLh" * 2, []),
        ("aeLLh" + "beLLh" * 3 + "x", [0, 5, 10, 15, 20]),  # a prompt, three tokens
        ("aeLLLh" + "beLLh" * 3, []),  # the first step does more
        ("x" + "eLLh" * 3 + "xx", [1, 5, 9, 13]),
        ("x" + "eLLh" * 3 + "H", []),
        ("x" + "eLLh" * 3 + "eL", [1, 5, 9, 13]),  # the profile ends within a step
    ],
)
def test_only_a_clear_loop_has_steps(ops, found):
    """Heavy ops are L, h and H, and e is what a model does once."""
    heavy, once = [op in "LhH" for op in ops], [op == "e" for op in ops]
    assert steps_of([ord(op) for op in ops], heavy, once) == found
