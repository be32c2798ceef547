"""Counts of routers: taken from a model, followed through arithmetic and exchanges, reported."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402

from flint.errors import FlintError, UsageError  # noqa: E402
from flint.graph.routing import Routing, routing_of  # noqa: E402
from tests.frontends.torch.in_child import record_in_child  # noqa: E402

TOKENS, EXPERTS, RANKS = 24, 8, 4


@given(
    st.integers(0, 10**6),
    st.lists(st.floats(0, 100), min_size=1, max_size=20).filter(lambda loads: sum(loads) > 1e-3),
)
def test_counts_add_up_and_are_as_near_as_whole_numbers_get(choices, loads):
    counts = routing_of(loads).counts(choices, len(loads))
    assert sum(counts) == choices
    for count, load in zip(counts, loads, strict=True):
        assert abs(count - choices * load / sum(loads)) < 1 + 1e-6


@given(st.integers(0, 10**6), st.integers(1, 300))
def test_balanced_counts_differ_by_one_at_most(choices, experts):
    counts = Routing().counts(choices, experts)
    assert sum(counts) == choices
    assert max(counts) - min(counts) <= 1


@pytest.mark.parametrize(
    "setting",
    [
        "zipf",
        "zipf:-1",
        "zipf:1/0",
        "no such file",
        (),
        (0, 0),
        (1, -1),
        3,
        ("a", "b"),
        (float("inf"),),
    ],
)
def test_other_settings_are_refused(setting):
    with pytest.raises(UsageError, match=r'expected "balanced"'):
        routing_of(setting)


@given(
    st.integers(1, 50),
    st.lists(st.floats(0, 100), min_size=1, max_size=20).filter(lambda loads: sum(loads) > 1e-3),
    st.data(),
)
def test_no_expert_has_more_choices_than_there_are_tokens(tokens, loads, data):
    each = data.draw(st.integers(1, len(loads)))
    counts = routing_of(loads).counts(tokens * each, len(loads), most=tokens)
    assert sum(counts) == tokens * each
    assert 0 <= min(counts) <= max(counts) <= tokens


def test_what_is_beyond_the_number_of_tokens_goes_to_the_other_experts_by_their_loads():
    # 2 of 4 experts for each of 12 tokens, loads 8:2:1:1. The first would have 16 of 24 choices; it
    # has 12, and the other 12 are shared as 2:1:1.
    assert routing_of((8, 2, 1, 1)).counts(24, 4, most=12) == [12, 6, 3, 3]


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


def choices(mesh):
    return (torch.randint(EXPERTS, (TOKENS,), device=mesh.device_type),)


def by_histogram(chosen):
    return torch.histc(chosen.float(), EXPERTS, min=0, max=EXPERTS).long()


def by_bincount(chosen):
    return torch.bincount(chosen, minlength=EXPERTS)


def by_scatter(chosen):
    zeros = torch.zeros(EXPERTS, dtype=torch.int64, device=chosen.device)
    return zeros.scatter_add_(0, chosen, torch.ones_like(chosen))


def shapes_of(count, use, rank=0, **settings):
    """Sizes that a step makes of what it read, and what was told."""

    def step(chosen):
        return [
            torch.empty(max(size, 0), device=chosen.device).zero_() for size in use(count(chosen))
        ]

    recording = record_in_child(
        step, choices, (RANKS,), ("ep",), rank, settings=settings or None
    )  # fmt: skip
    return [view.shape[0] for view in recording.results], recording.warnings


@pytest.mark.parametrize("count", [by_histogram, by_bincount, by_scatter])
def test_a_count_of_choices_is_the_models(count):
    sizes, told = shapes_of(count, lambda counts: counts.tolist())
    assert sizes == [TOKENS // EXPERTS] * EXPERTS
    ((text, times),) = told.items()
    assert times == EXPERTS
    assert "balanced routing: 24 choices among 8 experts, counted at test_routing.py" in text


def test_uneven_loads():
    sizes, told = shapes_of(by_bincount, lambda x: x.tolist(), routing=(5, 1, 1, 1, 1, 1, 1, 1))
    assert sizes == [10, 2, 2, 2, 2, 2, 2, 2]
    assert "loads 5:1:1:1:1:1:1:1 routing" in next(iter(told))


def test_loads_of_another_number_of_experts_are_refused():
    with pytest.raises(UsageError, match="loads of 2 experts, but the program chooses among 8"):
        shapes_of(by_bincount, lambda counts: counts.tolist(), routing=(1, 2))


def test_arithmetic_on_counts_is_done():
    def use(counts):
        ends = counts.view(2, -1).sum(1).cumsum(0)
        return [*ends.tolist(), (counts.max() + 1).item()]

    assert shapes_of(by_bincount, use)[0] == [12, 24, 4]


def test_what_a_program_overwrites_is_not_known_any_more():
    def use(counts):
        part = counts[:2]
        counts.copy_(torch.randint_like(counts, 9))
        return part.tolist()

    with pytest.raises(FlintError, match="an integer tensor's value is read"):
        shapes_of(by_bincount, use)


def test_nor_what_shares_its_storage():
    def use(counts):
        arriving = torch.empty_like(counts)
        part = arriving[:2]
        dist.all_to_all_single(arriving, counts)
        part.random_(0, 9)
        return arriving.tolist()

    with pytest.raises(FlintError, match="an integer tensor's value is read"):
        shapes_of(by_bincount, use)


def test_sums_over_ranks_are_not_followed():
    def use(counts):
        dist.all_reduce(counts)
        return counts.tolist()

    with pytest.raises(FlintError, match="an integer tensor's value is read"):
        shapes_of(by_bincount, use)


def exchanged(counts):
    arriving = torch.empty_like(counts)
    dist.all_to_all_single(arriving, counts)
    return arriving.tolist()


def exchanged_functionally(counts):
    from torch.distributed._functional_collectives import all_to_all_single

    return all_to_all_single(counts, None, None, dist.group.WORLD).tolist()


@pytest.mark.parametrize("exchange", [exchanged, exchanged_functionally])
def test_splits_pair_over_ranks(exchange):
    """What rank i sends to rank j is what j gets from i, if all route alike."""
    loads = {"routing": (5, 1, 3, 1, 1, 2, 3, 8)}
    each = EXPERTS // RANKS
    sent, _ = shapes_of(by_bincount, lambda counts: counts.tolist(), **loads)
    assert len(set(sent)) > 2
    for rank in (0, 3):
        received, _ = shapes_of(by_bincount, exchange, rank, **loads)
        assert received == sent[rank * each : (rank + 1) * each] * RANKS


def test_counts_of_all_ranks():
    def use(counts):
        everyone = torch.empty(RANKS, EXPERTS, dtype=counts.dtype, device=counts.device)
        dist.all_gather_into_tensor(everyone, counts)
        return everyone.tolist()[2]

    assert shapes_of(by_bincount, use, routing=tuple(range(EXPERTS)))[0] == [0, 1, 2, 3, 3, 4, 5, 6]


def test_integers_from_pythons_numbers_are_known_and_nothing_is_reported():
    def use(counts):
        return (torch.arange(3, device=counts.device) * 2 + 1).tolist()

    sizes, told = shapes_of(by_bincount, use)
    assert sizes == [1, 3, 5]
    assert not told


def test_other_integers_are_refused_by_line():
    with pytest.raises(
        FlintError, match=r"an integer tensor's value is read at .*test_routing\.py"
    ):
        shapes_of(lambda chosen: chosen, lambda chosen: chosen.tolist())
