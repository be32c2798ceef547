"""Values that generated kernels compute from known ones, compared with the functions really run."""

from __future__ import annotations

import pytest
import torch

from flint.frontends.torch.session import record
from tests.frontends.torch.in_child import in_child, record_in_child

TOKENS = [3, 0, 5, 0, 0, 7, 1, 2, 0, 9, 4, 0, 6, 8, 0, 3]


def documents(tokens):
    return (tokens == 0).cumsum(0)


def dense_mask(tokens):
    """Numbers and indices of blocks, as training programs make them."""
    first = documents(tokens).view(4, 4)[:, 0].contiguous()
    last = documents(tokens).view(4, 4)[:, -1].contiguous()
    rows = torch.arange(4, device=tokens.device)
    dense = (first[:, None] <= last) & (last[:, None] >= first) & (rows[:, None] >= rows)
    count = dense.sum(-1, dtype=torch.int32)
    order = dense.int().argsort(dim=-1, descending=False, stable=True).flip(-1).to(torch.int32)
    return count[None, None].contiguous(), order[None, None].contiguous()


def joined(tokens):
    """A buffer that several kernels write parts of, with shifted and padded reads."""
    starts = torch.nn.functional.pad(tokens[:-1], (1, 0), value=-1)
    return torch.cat([tokens.view(4, 4).sum(0), starts, tokens.view(4, 4).t().amax(0)])


def picked(tokens):
    """Indirect reads, also from the end, and writes to chosen places."""
    places = tokens % 16
    table = torch.zeros(16, dtype=torch.int64, device=tokens.device)
    table = table.index_put((places,), torch.ones_like(tokens), accumulate=True)
    return tokens[places - 3], table, tokens.argmax(), (tokens.view(2, 8) > 4).any(1)


def floats(tokens):
    share = tokens.float() / tokens.sum()
    return (share * 100).round().long(), torch.where(share > 0.1, tokens, -tokens) // 2


def updated(tokens):
    """Written in place, and read again."""
    tokens = tokens.clone()
    tokens[2:5] += 7
    tokens[::2].clamp_(max=5)
    return tokens, tokens.view(4, 4).cumsum(1), tokens.view(4, 4).flip(0).prod(1)


FUNCTIONS = (documents, dense_mask, joined, picked, floats, updated)


def read_by_all():
    """What a program reads of the results of the compiled functions."""
    read = []

    def setup(mesh):
        return ()

    def step():
        tokens = torch.tensor(TOKENS, device="cuda")
        for function in FUNCTIONS:
            torch._dynamo.reset()
            results = torch.compile(function)(tokens)
            results = results if isinstance(results, tuple) else (results,)
            read.append([item.tolist() for item in results])

    record(step, setup, (1,), ("dp",), 0, compile_for="h100-sxm")
    return read


@pytest.mark.thorough
def test_what_compiled_functions_return_is_what_they_return_in_reality():
    read = in_child(read_by_all)[: len(FUNCTIONS)]
    for function, found in zip(FUNCTIONS, read, strict=True):
        real = function(torch.tensor(TOKENS))
        real = real if isinstance(real, tuple) else (real,)
        for ours, theirs in zip(found, real, strict=True):
            assert torch.tensor(ours).equal(theirs.to(torch.tensor(ours).dtype)), function.__name__


def branch(x, flag):
    return torch.cond(flag.sum() > 2, lambda x: x @ x, lambda x: x @ x @ x @ x, (x,))


def loop(x, start):
    return torch.while_loop(
        lambda index, y: index < 5, lambda index, y: (index + 1, y @ y), (start, x)
    )[1]


def products_after(function, value):
    def setup(mesh):
        return torch.compile(function), torch.ones(32, 32, device="cuda")

    def run(function, x):
        with torch.no_grad():
            function(x, torch.tensor(value, device="cuda"))

    found = record_in_child(run, setup, (1,), ("dp",), compile_for="h100-sxm")
    assert not any("assumed" in text for text in found.warnings), found.warnings
    return sum(".mm" in op.name for op in found.ops)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("function", "value", "expected"),
    [
        (branch, [1, 1, 1], 1),  # 3 > 2: the first branch, of one product
        (branch, [1, 1, 0], 3),
        (loop, 0, 5),  # from 0 and from 3 to 5
        (loop, 3, 2),
    ],
)
def test_branches_and_loops_of_known_values_are_those_that_run(function, value, expected):
    assert products_after(function, value) == expected
