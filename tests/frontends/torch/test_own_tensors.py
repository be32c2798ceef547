"""Tensors that hold numbers of the rank, against PyTorch with the number of each rank."""

from __future__ import annotations

import tracemalloc

import pytest

pytest.importorskip("torch")

import numpy as np
import torch
import torch.distributed as dist

from flint.frontends.torch import context
from flint.frontends.torch.context import Capture
from flint.frontends.torch.shims import own_sizes, own_tensors
from flint.frontends.torch.shims.own_values import OwnRank, everywhere
from tests.frontends.torch.test_own_rank import captured, products

WORLD = 12
TABLE = torch.arange(12).reshape(3, 4)


def one_hot(rank):
    found = torch.zeros(12, dtype=torch.long)
    found[rank] = 1
    return found


def moved(rank):
    found = torch.tensor([4, 5, 6])
    found += rank
    found.mul_(2)
    return found


def a_part(rank):
    found = torch.zeros(24, dtype=torch.uint8)
    found[rank * 2 : rank * 2 + 2].copy_(torch.tensor([7, 9]))
    return found


def a_row(rank):
    found = torch.zeros(12, 2, dtype=torch.long)
    found[rank].fill_(5)
    found[rank] += 1
    return found


def a_part_of_a_view(rank):
    found = torch.zeros(12, 2, dtype=torch.long)
    found.view(-1)[rank] = 3
    return found.t()


NUMBERS = {
    "a number": lambda rank: torch.tensor(rank).item(),
    "a list": lambda rank: torch.tensor([rank, 1])[0].item(),
    "arithmetic": lambda rank: (torch.tensor([rank]) % 4 + 1).sum().item(),
    "two of them": lambda rank: (torch.tensor(rank) * torch.tensor(rank % 3)).item(),
    "a filled one": lambda rank: torch.full((2,), rank)[1].item(),
    "a row": lambda rank: TABLE[rank % 3].sum().item(),
    "written": lambda rank: one_hot(rank)[:5].sum().item(),
    "written in place": lambda rank: moved(rank).max().item(),
    "written by a slice": lambda rank: a_part(rank)[4:9].sum().item(),
    "written by a row": lambda rank: a_row(rank)[:5].sum().item(),
    "written by a view": lambda rank: a_part_of_a_view(rank)[0, :5].sum().item(),
    "a slice": lambda rank: torch.arange(40)[rank : rank + 2].sum().item(),
    "stacked": lambda rank: torch.stack([torch.tensor(rank), torch.tensor(2)]).sum().item(),
    "nested lists": lambda rank: torch.tensor([[rank, 1], [2, 3]]).sum().item(),
    "divided": lambda rank: (torch.tensor([rank]) // 5)[0].item(),
    "one of several": lambda rank: torch.tensor([rank, 7]).max(0).indices.item(),
}
ANSWERS = {
    "an element": lambda rank: bool(torch.tensor(rank) == 3),
    "any": lambda rank: bool(TABLE.eq(rank)[0].any()),
    "equal": lambda rank: torch.equal(torch.tensor([rank]), torch.tensor([7])),
    "written": lambda rank: bool(one_hot(rank)[2]),
    "in": lambda rank: rank in torch.tensor([1, 9]),
}


def on_the_device(mesh, x):
    return x @ x, torch.tensor(dist.get_rank(), device=x.device)


def by_gathered_numbers(mesh, x):
    """Ranks of a row, gathered and summed up: 0 to 7 are 28, and 8 to 15 are 92."""
    group = mesh.get_group("tp")
    own = torch.tensor([dist.get_rank()], device="cuda")
    ranks = [torch.empty_like(own) for _ in range(8)]
    dist.all_gather(ranks, own, group)
    total = own.clone()
    dist.all_reduce(total, group=group)
    assert total.item() in (28, 92) and ranks[7].item() in (7, 15)
    place, parts = dist.get_rank(group), torch.zeros(16, dtype=torch.uint8, device="cuda")
    parts[2 * place : 2 * place + 2].copy_(torch.tensor([1, 2], dtype=torch.uint8))
    dist.all_reduce(parts, group=group)  # a gather, as of pickled objects
    assert parts.cpu().tolist() == 8 * [1, 2]
    return x @ x @ x if ranks[0].item() == dist.get_rank() else x @ x


@pytest.fixture(autouse=True)
def begun():
    before = context.capture()
    yield context.begin(Capture((WORLD,)))
    context.begin(before)


def own():
    """The own rank 3 of 12."""
    return OwnRank(3, np.arange(WORLD))


def asked():
    """How values differ among ranks, of all that was asked."""
    return [item.kinds().tolist() for item in context.capture().evidence.all()]


@pytest.mark.parametrize("what", NUMBERS)
def test_a_number_read_from_a_tensor_is_that_of_every_rank(what):
    make = NUMBERS[what]
    with own_sizes.seeing():
        found = make(own())
    assert everywhere(found).tolist() == [make(rank) for rank in range(WORLD)]
    assert found == make(3)
    assert not context.capture().unseen


@pytest.mark.parametrize("what", ANSWERS)
def test_an_answer_read_from_a_tensor_is_asked_of_every_rank(what):
    make = ANSWERS[what]
    with own_sizes.seeing():
        assert make(own()) == make(3)
    assert [[bool(kind) for kind in kinds] for kinds in asked()] == [
        [make(rank) for rank in range(WORLD)]
    ]


def test_int_of_a_tensor_tells_ranks_apart():
    with own_sizes.seeing():
        assert int(torch.tensor([own()]) % 4) == 3
    assert asked() == [[rank % 4 for rank in range(WORLD)]]


def test_lists_of_few_numbers_are_followed_and_long_ones_are_data():
    with own_sizes.seeing():
        few = torch.tensor([own(), 2]).tolist()
        many = torch.full((17,), own()).tolist()
    assert everywhere(few[0]).tolist() == list(range(WORLD))
    assert few[1] == 2 and many == [3] * 17 and type(many[0]) is int


def test_shapes_that_follow_from_values_tell_ranks_apart():
    with own_sizes.seeing():
        assert len((torch.tensor([2, 3]) == own()).nonzero()) == 1
    assert asked()[:1] == [[rank in (2, 3) for rank in range(WORLD)]]


def test_where_another_ranks_number_fails_the_comparison_is_answered_no():
    """Ranks that are not in the table would not read it: they have another."""
    with own_sizes.seeing():
        place = (torch.tensor([2, 3]) == own()).nonzero().item()
        assert place == 1
    assert asked()[-1] == [rank == 3 for rank in range(WORLD)]


def test_a_tensor_that_is_written_over_no_longer_holds_the_rank():
    with own_sizes.seeing():
        numbers = torch.tensor([own()])
        numbers.fill_(5)
        assert type(numbers.item()) is int
    assert not asked()


def test_random_numbers_are_those_of_a_run_without_other_ranks():
    def drawn(rank):
        torch.manual_seed(1)
        return [torch.tensor([rank]).sum().item(), torch.randint(0, 100 + rank, (3,)).tolist()][1]

    with own_sizes.seeing():
        found = drawn(own())
    assert found == drawn(3)


def test_what_is_not_made_for_all_ranks_tells_them_apart_where_it_is_read(monkeypatch):
    monkeypatch.setattr(own_tensors, "MOST_KINDS", 4)
    with own_sizes.seeing():
        assert torch.tensor(own()).item() == 3
    assert asked() == [list(range(WORLD))]


def test_what_is_made_for_all_ranks_is_bounded(monkeypatch):
    """Ranks' own indices of a data set: 12 times 100 elements are more than 1,000."""
    monkeypatch.setattr(own_tensors, "MOST_ELEMENTS", 1000)
    with own_sizes.seeing():
        indices = torch.arange(own(), own() + 100)
        assert not context.capture().held[indices].values
        assert indices.tolist()[:2] == [3, 4]
    assert not asked()


def test_an_index_picked_of_many_costs_what_it_reads():
    """A sampler picks each of its rank's; a list of all would be 50,000 times 8 and 32 bytes."""
    indices, of_rank = torch.arange(50_000), own() * 4_000
    with own_sizes.seeing():
        indices[of_rank]  # what is cached from the first time on
        tracemalloc.start()
        picked = indices[of_rank]
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert everywhere(picked.item()).tolist() == [4_000 * rank for rank in range(WORLD)]
    assert most < 1_000_000


def test_floats_and_large_tensors_are_data():
    with own_sizes.seeing():
        assert type((torch.ones(2) * own()).sum().item()) is float
        assert type(torch.ones(1 << 19, dtype=torch.long).mul(own()).sum().item()) is int
    assert not asked()


def test_a_gather_and_a_sum_over_a_group_have_the_numbers_of_its_ranks():
    """In a step as in a program: ranks 8 to 15 of 16, and the first of each row is told apart."""
    workload = captured(by_gathered_numbers, (2, 8))
    assert [rank for rank, count in enumerate(products(workload)) if count == 2] == [0, 8]
    assert not [text for text in workload.warnings if "giving the same" in text]


def test_a_step_may_return_a_tensor_on_the_device_that_holds_a_number_of_the_rank():
    """The memory of such a tensor is no value, which could be read."""
    workload = captured(on_the_device, (4,))
    assert products(workload) == [1] * 4
