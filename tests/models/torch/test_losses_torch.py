"""Losses without all scores, tied ends, and scores that are held: gradients against PyTorch's own,
sizes and what is kept derived by hand.

Letters: T tokens, D width, V tokens of the vocabulary.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import flint

torch = pytest.importorskip("torch")

from flint.models.torch.llama3 import TINY, training  # noqa: E402
from flint.models.torch.llama3_model import Llama  # noqa: E402
from flint.models.torch.losses import Head  # noqa: E402
from flint.simulation.caching_allocator import usage  # noqa: E402
from tests.models.torch.one_rank import exchanges  # noqa: E402

pytestmark = pytest.mark.xdist_group("torch-llama3")

T, D, V = 12, 8, 20
BF16, F32 = 2, 4


@pytest.mark.parametrize("loss", ["chunked", "fused", "compiled", "by vocabulary"])
def test_a_loss_in_parts_is_the_loss_and_so_are_its_gradients(loss):
    torch.manual_seed(0)
    head = Head(D, V, loss, 5)
    x, targets = torch.randn(2, T // 2, D, requires_grad=True), torch.randint(0, V, (2, T // 2))
    whole = torch.nn.functional.cross_entropy(head(x).flatten(0, 1), targets.flatten())
    expected = torch.autograd.grad(whole / 3, (x, head.weight))
    found = head(x, targets)
    gradients = torch.autograd.grad(found / 3, (x, head.weight))
    torch.testing.assert_close(found, whole)
    torch.testing.assert_close(gradients, expected)


def test_a_loss_in_place_is_that_of_all_tokens_but_the_last():
    torch.manual_seed(0)
    head = Head(D, V, "in place")
    x, targets = torch.randn(2, T // 2, D, requires_grad=True), torch.randint(0, V, (2, T // 2))
    scores = head(x).flatten(0, 1)
    whole = torch.nn.functional.cross_entropy(scores[:-1], targets.flatten()[:-1])
    expected = torch.autograd.grad(whole / 3, (x, head.weight))
    found = head(x, targets)
    gradients = torch.autograd.grad(found / 3, (x, head.weight))
    torch.testing.assert_close(found, whole)
    torch.testing.assert_close(gradients, expected)


@pytest.mark.thorough
def test_a_tied_head_has_no_weight_of_its_own():
    """Exchanges: of one group all parameters but the head's V D are gathered."""
    tied = replace(TINY, tied=True, ends="together")
    with torch.device("meta"):
        both, one = (sum(p.numel() for p in Llama(c).parameters()) for c in (TINY, tied))
    assert both - one == TINY.vocabulary * TINY.width
    found = exchanges(training(tied, mesh=(2,), axes=("dp",)))
    layers = TINY.layers
    assert found["reduce_scatter", ("dp",)] == (layers + 1, F32 * one, F32 * one // 2)


@pytest.mark.parametrize(("config", "axes", "words"), [
    (replace(TINY, tied=True), ("dp",), 'in one group: ends="together"'),
    (replace(TINY, loss="fused"), ("tp",), "split over the axis tp"),
    (replace(TINY, tied=True), ("pp",), "split over the axis pp"),
])  # fmt: skip
def test_ends_that_cannot_be_split_so_are_refused(config, axes, words):
    from flint.errors import FlintError

    with pytest.raises(FlintError, match=words):
        training(config, mesh=(2,), axes=axes).capture()


#: A head that is all of the peak: scores have 64 times the stream's elements.
BIG = replace(TINY, layers=1, vocabulary=4096, sequence=512, dtype=torch.bfloat16)


def peak(**options):
    """Most bytes that live at once in a step, beside its inputs."""
    config = replace(BIG, **options)
    program = training(config, mesh=(1,), axes=("tp",)).capture().programs[0]
    rows = program.allocations
    before = int(rows.size[(rows.born < 0) & (rows.pool >= 0)].sum())
    return usage(rows).allocated - before


@pytest.fixture(scope="module")
def whole():
    return peak()


@pytest.mark.thorough
def test_scores_that_a_variable_holds_add_once_their_bytes(whole):
    """In the backward pass of the loss: bfloat16, beside what it computes with."""
    assert peak(hold=True) - whole == BF16 * BIG.sequence * BIG.vocabulary
    # Those that were cast, in float32: the model's own are gone by then.
    assert peak(hold="cast") - whole == F32 * BIG.sequence * BIG.vocabulary


@pytest.mark.thorough
@pytest.mark.parametrize(("options", "less"), [
    # The loss's backward pass: log-softmaxes, their gradient, and the scores' in float32: 12 bytes
    # a score.  In n = 8 parts, the most is before it: scores of all and their log-softmaxes, and
    # the last part's scores in float32, 2 + 4 + 4 / n.
    ({"loss": "chunked"}, lambda t, v, d: (12 - (2 + 4 + 4 / 8)) * t * v),
    # All scores in float32, and those of all tokens but the last; three numbers a token.
    pytest.param(
        {"loss": "in place"}, lambda t, v, d: (12 - 4 - 4) * t * v + 4 * v - 3 * 4 * t,
        marks=pytest.mark.thorough,
    ),
    # Scores and their gradients, and the last of n = 8 parts in float32.
    ({"loss": "compiled"}, lambda t, v, d: (12 - 2 - 2 - 4 / 8) * t * v - 4 * t),
    # Of one part scores and log-softmaxes in float32, 8 / n; the gradients of the head's weight and
    # input are there already.
    pytest.param(
        {"loss": "fused"}, lambda t, v, d: (12 - 8 / 8) * t * v - BF16 * (v + t) * d,
        marks=pytest.mark.thorough,
    ),
    pytest.param(
        {"loss": "fused", "chunks": 4}, lambda t, v, d: (12 - 8 / 4) * t * v - BF16 * (v + t) * d,
        marks=pytest.mark.thorough,
    ),
])  # fmt: skip
def test_a_loss_in_parts_keeps_less(whole, options, less):
    """To a few scalars."""
    expected = less(BIG.sequence, BIG.vocabulary, BIG.width)
    assert abs(whole - peak(**options) - expected) < 1024


@pytest.mark.thorough
def test_whole_weights_are_gathered_once_and_gradients_reduced_for_each_batch():
    """ZeRO-2: each of the L + 2 groups once, and its gradients twice, for two batches."""
    config = replace(TINY, keep="weights", accumulation=2)
    found = exchanges(training(config, mesh=(2,), axes=("dp",)))
    groups = TINY.layers + 2
    assert found["all_gather", ("dp",)][0] == groups
    assert found["reduce_scatter", ("dp",)][0] == 2 * groups


def test_a_loss_over_parts_of_the_vocabulary_moves_each_score_many_times():
    """Bytes per score in prime-rl's order, an operation a kernel.  Forward: to float32 6, times the
    inverse temperature 8, maximum 4, less it 8, exponential 8, sum 4, times the score 12, sum 4.
    Backward: 6, 8, less the logarithm 8, exponential 8, times the gradient 8, times the temperature
    8, to bfloat16 twice 12."""
    head = Head(8, 1 << 15, "by vocabulary", 8, tied=True)
    tokens = 1 << 10

    def build(mesh):
        weight = torch.empty(1 << 15, 8, dtype=torch.bfloat16, device=mesh.device_type)
        x = torch.empty(1, tokens, 8, dtype=torch.bfloat16, device=mesh.device_type)
        goals = torch.zeros(1, tokens, dtype=torch.long, device=mesh.device_type)
        return x.requires_grad_(), weight.requires_grad_(), goals

    def step(x, weight, goals):
        head(x, goals, weight).backward()

    graph = (
        flint.capture(step, setup=build, mesh=(1,), framework="torch").capture().programs[0].graph
    )
    products = np.array(["mm" in name for name in graph.tables.ops])[graph.op]
    moved = (graph.bytes_read + graph.bytes_written)[~products].sum()
    assert moved / (tokens << 15) == pytest.approx(54 + 58, rel=0.03)
