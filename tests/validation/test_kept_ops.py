"""Light ops that only one of a capture and a run has are found."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flint.graph.graph import Phase
from flint.observed.columns import Functions
from flint.validation.expected.named_ops import CapturedNames, missing
from flint.validation.validating import validate
from tests.support.shared import quick, quick_rows
from tests.validation import xla_kept_ops
from tests.validation.xla_runs import Runs, named

pytestmark = pytest.mark.xdist_group("validation")

POOLED = ("greatest", "least", "total")
MOVED = ("permuted", "turned", "masked", "residual", "chosen", "middle")
NAMES = ("plain", "ordered", "places", "largest", "waves", *POOLED, *MOVED)
#: Of a capture and of a run, and what differs: a compiler may make another op of a sort.
PAIRS = [
    ("plain", "ordered", "not captured sort among the fused ops"),
    ("plain", "waves", "not captured fft among the fused ops"),
    ("waves", "plain", "not executed fft among the fused ops"),
    ("plain", "greatest", "not captured reduce_window_max among the fused ops"),
    ("greatest", "plain", "not executed reduce_window_max among the fused ops"),
    ("plain", "least", "not captured reduce_window_min among the fused ops"),
    ("least", "greatest", "not executed reduce_window_min among the fused ops"),
    ("total", "plain", "not executed reduce_window_sum among the fused ops"),
    ("plain", "permuted", "not captured gather among the fused ops"),
    ("permuted", "plain", "not executed gather among the fused ops"),
    ("plain", "turned", "not captured rev among the fused ops"),
    ("turned", "plain", "not executed rev among the fused ops"),
    ("plain", "masked", "not captured select_n among the fused ops"),
    ("plain", "residual", "not captured add among the fused ops"),
]


@pytest.fixture(scope="module")
def compare(host_runs):
    """Report of a step's capture against the run of a step."""
    return Runs(host_runs, xla_kept_ops).compare


@pytest.mark.parametrize("name", quick(NAMES, "ordered"))
def test_a_step_agrees_with_its_own_run(name, compare):
    report = compare(name)
    assert report.ok, named(report)


@pytest.mark.parametrize(("captured", "run", "what"), quick_rows(PAIRS, PAIRS[0]))
def test_a_missing_op_is_found(captured, run, what, compare):
    report = compare(captured, run)
    assert not report.ok
    assert what in named(report)


def test_names_are_of_a_version_of_jax(host_runs):
    """A step without its permutation; jax 0.9.2 and 0.12 name ops of gelu otherwise than 0.10."""
    captured = xla_kept_ops.plain.capture()
    runs = [Runs(host_runs, xla_kept_ops).profile("permuted")]
    assert not validate(captured, runs).ok
    other = replace(captured, input=captured.input | {"version": "0.9.2"})
    report = validate(other, runs)
    assert report.ok
    assert any("names of lighter ops are not" in note for note in report.notes)


def test_names_of_both_sides():
    def ran(*ops):
        named = frozenset((layer, Phase.FORWARD, op) for layer, op in ops)
        return Functions(0, 0, frozenset(), frozenset(), named, frozenset(ops))

    names = frozenset((layer, Phase.FORWARD, "max") for layer in "abc")
    stay = frozenset({frozenset({("a", "max"), ("b", "max")}), frozenset({("c", "max")})})
    program = CapturedNames(names, stay, frozenset({"random"}))
    # Of a and b, which look alike, the compiler may have merged one with the other.
    assert missing(program, ran(("a", "max"), ("c", "max"))) == []
    assert missing(program, ran(("a", "max"))) == [("not executed", "max", "c")]
    # In a layer whose ops platforms lower in their own way, another one says nothing.
    more = ("a", "max"), ("c", "max"), ("random/bits", "xor"), ("d", "xor")
    assert missing(program, ran(*more)) == [("not captured", "xor", "d")]
