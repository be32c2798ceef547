"""Masks of a router's choices: as many rows as the stated routing says, in each way to make one."""

from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch")

from flint.errors import FlintError  # noqa: E402
from tests.frontends.torch.in_child import record_in_child  # noqa: E402

TOKENS, EXPERTS, RANKS = 24, 8, 4


def scores(mesh):
    return (torch.randn(TOKENS, EXPERTS, device=mesh.device_type),)


def scattered(scores, chosen):
    return torch.zeros_like(scores).int().scatter(1, chosen, 1).bool()


def scattered_in_place(scores, chosen):
    mask = torch.zeros_like(scores)
    mask.scatter_(1, chosen, torch.ones_like(chosen, dtype=scores.dtype))
    return mask.bool()


def one_hot(scores, chosen):
    return torch.nn.functional.one_hot(chosen, EXPERTS).sum(1).bool()


def compared(scores, chosen):
    experts = torch.arange(EXPERTS, device=scores.device)
    return (chosen[:, :, None] == experts).any(1)


def each_expert(scores, chosen):
    return torch.stack([(chosen == expert).any(-1) for expert in range(EXPERTS)], dim=1)


def of_sizes(sizes):
    return [torch.zeros(size, device="cuda").add_(1) for size in sizes]


MASKS = (scattered, scattered_in_place, one_hot, compared, each_expert)


def sizes_of(use, **settings):
    """Numbers of rows of what a step makes of scores, and the warnings."""
    recording = record_in_child(use, scores, (RANKS,), ("ep",), settings=settings or None)
    return [view.shape[0] for view in recording.results], recording.warnings


@pytest.mark.parametrize("mask_of", MASKS)
def test_a_mask_of_choices_selects_as_many_tokens_as_the_model_says(mask_of):
    def step(scores):
        mask = mask_of(scores, scores.topk(2).indices)
        rows = [scores[mask[:, expert]] for expert in range(EXPERTS)]
        return [*rows, scores.masked_select(mask), *of_sizes(mask.sum(0).tolist())]

    # 24 tokens choose 2 of 8 experts each: 48 choices, of which the first expert has 3 of 10 shares
    # (14.4) and each other one 4.8; the 6 that are left when all are rounded down go to the largest
    # rests.
    sizes, warnings = sizes_of(step, routing=(3, 1, 1, 1, 1, 1, 1, 1))
    assert sizes == [14, 5, 5, 5, 5, 5, 5, 4, 48, 14, 5, 5, 5, 5, 5, 5, 4]
    assert all("routing: 48 choices among 8 experts, made at" in text for text in warnings)


def test_choices_reach_as_many_ranks_as_random_ones():
    """Of 64 experts on 8 ranks a row chooses 6: of all ways to choose, C(56, 6) of C(64, 6) miss a
    rank. Balanced, each rank is reached by equally many rows."""
    rows, experts, ranks, chosen = 640, 64, 8, 6

    def made(mesh):
        return (torch.randn(rows, experts, device=mesh.device_type),)

    def step(scores):
        rank = scores.topk(chosen).indices // (experts // ranks)
        goes = torch.zeros(rows, ranks, device=scores.device).int().scatter(1, rank, 1)
        return of_sizes(goes.sum(0).tolist())

    recording = record_in_child(step, made, (1,), ("ep",))
    (reached,) = {view.shape[0] for view in recording.results}
    expected = rows * (1 - math.comb(56, 6) / math.comb(64, 6))
    assert reached == pytest.approx(expected, rel=0.05)


def test_a_loop_over_experts_that_have_tokens():
    def step(scores):
        chosen = scores.topk(2).indices
        mask = torch.nn.functional.one_hot(chosen, EXPERTS).permute(2, 1, 0)
        rows = []
        for [expert] in (mask.sum((-1, -2)) > 0).nonzero():
            _, tokens = torch.where(mask[expert])
            rows.append(scores[tokens])
        return rows

    assert sizes_of(step)[0] == [TOKENS * 2 // EXPERTS] * EXPERTS


def test_a_loop_over_the_experts_that_are_chosen():
    def step(scores):
        chosen = scores.topk(2).indices
        return [scores[(chosen == expert).any(1)] for expert in chosen.unique().tolist()]

    assert sizes_of(step)[0] == [TOKENS * 2 // EXPERTS] * EXPERTS


def test_a_token_chooses_no_expert_twice():
    def step(scores):
        mask = scattered(scores, scores.topk(3).indices)
        return of_sizes(mask.sum(1).tolist())

    assert sizes_of(step, routing="zipf:2")[0] == [3] * TOKENS


def test_the_most_probable_class_is_not_compared_with_labels():
    def step(scores):
        labels = torch.arange(TOKENS, device=scores.device) % EXPERTS
        return of_sizes([(scores.argmax(1) == labels).sum().item()])

    with pytest.raises(FlintError, match="an integer tensor's value is read"):
        sizes_of(step)


def test_zeros_that_were_overwritten_are_not_marked():
    def step(scores):
        mask = torch.zeros_like(scores)
        mask.copy_(scores)
        mask.scatter_(1, scores.topk(2).indices, 1.0)
        return [scores[mask.bool()]]

    with pytest.raises(FlintError):
        sizes_of(step)
