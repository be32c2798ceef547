"""Recurrent layers, which the CPU runs in another form than captured."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from flint.converters.profilers.torch_ops import op_facts  # noqa: E402
from flint.errors import FlintError  # noqa: E402
from flint.observed.classes import OpClass  # noqa: E402
from flint.validation.matching.equivalence import rules_for  # noqa: E402
from flint.validation.matching.pairing import Matching  # noqa: E402
from flint.validation.rewrites.recurrent import JOINED  # noqa: E402
from flint.validation.rewrites.recurrent_light import ORDER, _order  # noqa: E402
from flint.validation.rewrites.table import match  # noqa: E402
from flint.validation.validating import validate  # noqa: E402
from tests.support.children import run_script  # noqa: E402
from tests.support.shared import once, quick, quick_rows  # noqa: E402
from tests.validation.recurrent_steps import STEPS, Packed, Sequences, trained  # noqa: E402

pytestmark = pytest.mark.xdist_group("validation-recurrent")

#: Products of all steps at once: of a GRU's inputs, forward and for the weight's gradient; an LSTM
#: is one op, and one for its gradients; a stacked one needs the gradient of its second input, too.
#: A packed LSTM is multiplied like a GRU.
AT_ONCE = {
    "gru": 2, "gru_one_by_one": 2 + 3, "lstm": 2, "rnn": 2, "stacked_gru": 2 * 2 + 2 * 3,
    "stacked_lstm": 2 * 4, "packed_gru": 2, "packed_lstm": 2 * 2 + 2 * 3,
    "decoded_gru": 2 * 2 + 2 * 3,
}  # fmt: skip


@pytest.fixture(scope="module")
def traces(tmp_path_factory):
    """Files of a step's name and a form of traces."""

    def run(name):
        def profile(folder):
            script = Path(__file__).parent / "torch_profiling.py"
            run_script(script, folder, f"tests.validation.recurrent_steps:{name}", imported="torch")

        return once(tmp_path_factory, f"recurrent-{name}", profile)

    return lambda name, form: sorted(run(name).glob(f"{form}_rank*.json"))


def in_two_steps(gates=64, steps=2):
    """Products and cells of an LSTM of two steps, and the library's op for all of them."""
    shapes = [(steps, 4, 8), (64, 8), (64, 16), (64,), (64,), (4, 16), (4, 16)]
    one = [
        op_facts("aten::mm", [[((4, 8), "f32")], [((8, gates), "f32")]]),
        op_facts("aten::mm", [[((4, 16), "f32")], [((16, gates), "f32")]]),
        op_facts("aten::_thnn_fused_lstm_cell", [[((4, gates), "f32")]] * 2 + [[((4, 16), "f32")]]),
    ]
    library = op_facts("aten::mkldnn_rnn_layer", [[(shape, "f32")] for shape in shapes])
    rules = rules_for([library], recorded=True, backend="cpu")
    return match(Matching(one * 2, [library], rules))


def test_a_librarys_op_represents_the_products_and_cells_of_each_step():
    matching = in_two_steps()
    assert [(i, j) for i, j, _ in matching.pairs] == [(0, 0), (1, 0), (3, 0), (4, 0)]
    assert matching.without_captured == [2, 5]
    assert not matching.unmatched_captured and not matching.unmatched_executed


@pytest.mark.parametrize("other", [{"gates": 48}, {"steps": 3}], ids=str)
def test_a_librarys_op_of_other_sizes_or_more_steps_represents_none(other):
    assert not in_two_steps(**other).pairs


@pytest.mark.parametrize(
    ("name", "form"),
    quick_rows(
        [(name, form) for name in STEPS for form in ("kineto", "et")],
        ("gru", "kineto"),
    ),
)  # fmt: skip
def test_a_recurrent_layer_agrees_with_its_run(name, form, traces):
    report = validate(STEPS[name].capture(), traces(name, form))
    assert report.ok, (report.verdict, report.differences[:4], report.contradictions[:2])
    gemms = report.classes[OpClass.GEMM]
    assert gemms.matched == gemms.captured
    # The lengths of packed sequences lie on a CPU, so their run copies none of them.
    lengths = name.startswith(("packed", "decoded"))
    assert not [
        item for item in report.differences
        if item.what != "in another order" and (item.counts or not lengths)
    ]  # fmt: skip
    ranks = 2
    key = name.removeprefix("sharded_")
    assert report.explained.get(JOINED, 0) == ranks * AT_ONCE.get(key, 0)


#: What is captured in the place of what ran.
OTHERS = {
    "a wider GRU": ("gru", lambda: Sequences(nn.GRU, hidden=20), 5),
    "a GRU of one step more": ("gru", lambda: Sequences(nn.GRU), 6),
    "an LSTM for a GRU": ("gru", lambda: Sequences(nn.LSTM), 5),
    "an RNN for a GRU": ("gru", lambda: Sequences(nn.RNN), 5),
    "two GRUs for one": ("gru", lambda: Sequences(nn.GRU, num_layers=2), 5),
    "a wider LSTM": ("lstm", lambda: Sequences(nn.LSTM, hidden=20), 5),
    "an LSTM of one step more": ("lstm", lambda: Sequences(nn.LSTM), 6),
    "a GRU for an LSTM": ("lstm", lambda: Sequences(nn.GRU), 5),
    "two LSTMs for one": ("lstm", lambda: Sequences(nn.LSTM, num_layers=2), 5),
    "shorter sequences": ("packed_gru", lambda: Packed(nn.GRU), 4),
    "sequences of one length": ("packed_gru", lambda: Sequences(nn.GRU), 5),
    "an LSTM in both directions": ("lstm", lambda: Sequences(nn.LSTM, bidirectional=True), 5),
}


@pytest.mark.thorough
@pytest.mark.parametrize("other", quick(OTHERS, "a GRU of one step more"))
def test_another_recurrent_layer_is_found(other, traces):
    run, make, steps = OTHERS[other]
    changed = trained(make, steps).capture()
    try:
        report = validate(changed, traces(run, "kineto"))
    except FlintError:  # too little is the same
        return
    assert not report.ok


def test_all_reduces_of_a_layers_gradients_may_come_in_another_order():
    """A hook for each gradient starts them; 64 rows are the gates of the layer."""
    shapes = [(64, 8), (64,), (8, 64), (8,)]
    facts = [op_facts("c10d::allreduce_", [[(shape, "f32")]]) for shape in shapes]
    assert all(one.kind is OpClass.ALL_REDUCE for one in facts)
    matching = Matching(facts, facts, rules_for(facts, recorded=True, backend="cpu"))
    matching.reordered = [(0, 1), (1, 0), (2, 3), (3, 2)]
    _order(matching, {64})
    assert matching.reordered == [(2, 3), (3, 2)]
    assert matching.explained[ORDER] == 2
