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
