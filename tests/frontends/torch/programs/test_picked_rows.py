"""Sizes of graph networks that pool: how many nodes of each graph a pooling keeps, and finds."""

from __future__ import annotations

import textwrap

import pytest

pytest.importorskip("torch")
import torch

import flint.frontends.torch.programs.rank  # noqa: F401  # here, not in every child

#: Half of each graph's nodes are kept, twice, as PyG's TopKPooling chooses them.
POOLING = """
    def ends(counts):
        found = counts.new_empty(len(counts) + 1)
        found.narrow(0, 0, 1).zero_()
        torch.cumsum(counts, 0, out=found.narrow(0, 1, len(counts)))
        return found

    def counts(batch):
        size = int(batch.max()) + 1
        return batch.new_zeros(size).scatter_add_(0, batch, torch.ones_like(batch))

    def pooled(scores, batch):
        number = counts(batch)
        kept = (0.5 * number.float()).ceil().long()
        scores, best = scores.sort(descending=True)
        groups, places = batch[best].sort(stable=True)
        within = torch.arange(len(batch), device=batch.device) - ends(number)[groups]
        return best[places[within < kept[groups]]]

    def sizes(device):
        batch = torch.tensor([0] * 9 + [1] * 4 + [2] * 12 + [3] * 7).to(device)
        found = []
        for _ in range(2):
            chosen = pooled(torch.rand(len(batch), device=device), batch)
            batch = batch[chosen]
            found.append([len(batch), counts(batch).tolist()])
        return found

    say(sizes("{device}"))
"""


def test_pooled_graphs_keep_their_shares(said):
    """ceil(n / 2) of 9, 4, 12 and 7 nodes are 17; ceil(n / 2) of 5, 2, 6 and 4 are 9."""
    real = []
    exec(textwrap.dedent(POOLING.format(device="cpu")), {"torch": torch, "say": real.append})
    [(first, each), (second, _)] = real[0]
    assert (first, each, second) == (17, [5, 2, 6, 4], 9)
    [(first, kept), (second, _)] = said(POOLING.format(device="cuda"))[0]
    assert first == 17 and abs(second - 9) <= 1  # an even choice is off by one node of a graph
    assert max(abs(one - other) for one, other in zip(kept, each, strict=True)) <= 1


def test_rows_without_an_order_and_words_are_not_known(said):
    assert said("""
        from flint.frontends.torch.recording.known_values import known_value
        places = torch.rand(6, device="cuda").topk(3).indices
        names = torch.tensor([3, 1, 2, 5, 4, 6]).cuda()
        weights = torch.arange(6.0).cuda()
        say([known_value(item[places]) is None for item in (names, weights)])
    """) == [[True, True]]
