"""Sequences packed one behind the other, in steps that are captured."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence  # noqa: E402

import flint  # noqa: E402
from flint.graph.work import Unit  # noqa: E402

LENGTHS = [3, 7, 5, 5]
IN, HIDDEN, LONGEST = 12, 16, 8
HEADS, SIZE, TOKENS = 2, 16, 96
varlen = pytest.importorskip("torch.nn.attention.varlen")


def sentences(mesh):
    lstm = nn.LSTM(IN, HIDDEN, batch_first=True).to(mesh.device_type)
    words = torch.randn(len(LENGTHS), LONGEST, IN, device=mesh.device_type)
    return lstm, words, torch.tensor(LENGTHS)


def from_the_device(mesh):
    lstm, words, _ = sentences(mesh)
    return lstm, words, torch.randn(len(LENGTHS), device=mesh.device_type).abs().long().cpu()


def read(lstm, words, lengths):
    packed = pack_padded_sequence(words, lengths, batch_first=True, enforce_sorted=False)
    return pad_packed_sequence(lstm(packed)[0], batch_first=True)[0]


def products(workload):
    graph = workload.programs[0].graph
    work = (item for node in graph for item in node.work.items)
    return sum(item.flops for item in work if item.unit is Unit.MATMUL)


@pytest.mark.parametrize(
    ("setup", "steps", "warned"),
    [(sentences, sum(LENGTHS), False), (from_the_device, len(LENGTHS) * LONGEST, True)],
)
def test_a_recurrent_network_takes_as_many_steps_as_sentences_are_long(setup, steps, warned):
    """Every word takes four gates' products of its vector and of the state."""
    workload = flint.capture(mesh=(1,), axes=("dp",), setup=setup)(read).capture()
    assert products(workload) == 2 * steps * (IN + HIDDEN) * 4 * HIDDEN
    told = [text for text in workload.warnings if "sequences are packed" in text]
    assert bool(told) == warned
    assert all("test_packed_sequences.py" in text and "be 8" in text for text in told)


def test_sizes_of_packed_sequences_are_on_the_host_whatever_the_default_device():
    def everything_there(mesh):
        torch.set_default_device(mesh.device_type)
        return sentences(mesh)

    workload = flint.capture(mesh=(1,), axes=("dp",), setup=everything_there)(read).capture()
    assert products(workload) == 2 * sum(LENGTHS) * (IN + HIDDEN) * 4 * HIDDEN


def documents(ends, *, are_known=True):
    """Documents packed one behind the other, which end there."""

    def setup(mesh):
        device = mesh.device_type
        begins = torch.tensor([0, *ends], dtype=torch.int32).to(device)
        if not are_known:
            begins = torch.randn(len(begins), device=device).int()
        tensors = [
            torch.randn(TOKENS, HEADS, SIZE, device=device, dtype=torch.bfloat16) for _ in range(3)
        ]
        return [item.requires_grad_() for item in tensors], begins

    return setup


def attend(tensors, begins, longest=TOKENS):
    out = varlen.varlen_attn(*tensors, begins, begins, longest, longest, window_size=(-1, 0))
    out.sum().backward()


def captured(setup):
    """Scores of the step, and its warnings: two products forward, five backward."""
    workload = flint.capture(mesh=(1,), axes=("dp",), setup=setup)(attend).capture()
    told = [text for text in workload.warnings if "varlen" in text]
    return products(workload) / (7 * 2 * HEADS * SIZE), told


def causal(*lengths):
    return sum(n * (n + 1) // 2 for n in lengths)


def test_attention_over_documents_of_known_lengths_is_that_of_each():
    scores, told = captured(documents([10, 64, 64, TOKENS - 2]))  # the last tokens are of none
    assert scores == causal(10, 54, 0, 30)
    assert not any("lower bound" in text for text in told)


def test_attention_over_documents_of_unknown_lengths_is_that_of_equal_ones():
    scores, told = captured(documents([10, 20, 30, TOKENS], are_known=False))
    assert scores == causal(24, 24, 24, 24)
    assert len(told) == 2 and all("a lower bound" in text for text in told)


def test_attention_over_one_document_of_unknown_length_is_exact():
    scores, told = captured(documents([TOKENS], are_known=False))
    assert scores == causal(TOKENS)
    assert not any("lower bound" in text for text in told)
