"""Sparse gradients: PyTorch's own sparse tensors, and the parts of them that are recorded."""

from __future__ import annotations

import contextlib

import pytest
import torch

from flint.errors import FlintError
from flint.frontends.torch.context import Capture, begin
from flint.frontends.torch.modes import dispatch_mode
from flint.frontends.torch.recording.sparse_rows import MADE, SparseRows, rows_of, sparse_bags
from tests.frontends.torch.checking import assert_equal, check
from tests.frontends.torch.in_child import record_in_child
from tests.frontends.torch.real_recording import record

ROWS, WIDTH = 40, 8
#: Indices of three texts; one is there several times.
TOKENS = torch.tensor([[3, 7, 3, 39, 0], [7, 7, 1, 2, 5], [39, 3, 8, 9, 10]])


class Tables(torch.nn.Module):
    """Rows of a table, used twice, and sums, weighted sums and means of bags of rows."""

    def __init__(self):
        super().__init__()
        self.words = torch.nn.Embedding(ROWS, WIDTH, sparse=True)
        for mode in ("sum", "mean"):
            setattr(self, mode, torch.nn.EmbeddingBag(ROWS, WIDTH, sparse=True, mode=mode))

    def forward(self, tokens):
        flat, offsets = tokens.flatten(), torch.arange(0, tokens.numel(), 5, device=tokens.device)
        weights = torch.linspace(0.5, 1.5, tokens.numel(), device=tokens.device)
        bags = self.sum(flat, offsets, per_sample_weights=weights) * self.mean(tokens)
        return (self.words(tokens).sum(1) * bags * self.words(tokens[:, 0])).square().mean()


OPTIMIZERS = {
    "SGD": lambda parameters: torch.optim.SGD(parameters, lr=0.5),
    "SGD, maximising": lambda parameters: torch.optim.SGD(parameters, lr=0.5, maximize=True),
    "SparseAdam": lambda parameters: torch.optim.SparseAdam(parameters, lr=0.1),
    "Adagrad": lambda parameters: torch.optim.Adagrad(parameters, lr=0.1),
}


def made_of_parts(op, types, args, kwargs):
    """Sparse tensors of real ones, as in a capture."""
    if SparseRows in types:
        return NotImplemented
    if op is MADE:
        return rows_of({}, op, args, kwargs)
    bags = sparse_bags(op, args, kwargs)
    if bags is None:
        return op(*args, **kwargs)
    grad, indices, offsets, of_each, *rest = args
    if not of_each.numel():  # which bag an index is in; GPUs' kernels always have it
        of_each = torch.bucketize(torch.arange(indices.numel()), offsets, right=True) - 1
    return bags(grad, indices, offsets, of_each, *rest, **kwargs)


def training(optimizer, way, accumulated):
    """A model, and a step whose sparse tensors are made in some way."""
    torch.manual_seed(0)
    model = Tables()
    chosen = OPTIMIZERS[optimizer](model.parameters())

    def step(tokens):
        with way():
            for _ in range(accumulated):
                model(tokens).backward()
            chosen.step()
            chosen.zero_grad()
        return []

    return model, step


@pytest.mark.parametrize("accumulated", [1, 2])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_updates_are_those_of_pytorchs_sparse_tensors(optimizer, accumulated):
    begin(Capture())
    plain, run = training(optimizer, contextlib.nullcontext, accumulated)
    model, step = training(optimizer, lambda: dispatch_mode(made_of_parts), accumulated)
    before = [item.clone() for item in model.parameters()]
    for each in (run, step, run):
        each(TOKENS)
    recorded = record(step, TOKENS)
    for ours, theirs, old in zip(model.parameters(), plain.parameters(), before, strict=True):
        assert_equal(ours.detach(), theirs.detach())
        assert not torch.equal(ours, old)
    check(recorded)


def captured(step, optimizer=torch.optim.Adagrad, tokens=TOKENS):
    def setup(mesh):
        model = torch.nn.Embedding(ROWS, WIDTH, sparse=True, device=mesh.device_type)
        return model, optimizer(model.parameters(), lr=0.1), tokens.to(mesh.device_type)

    return record_in_child(step, setup, (2,), ("dp",))


def plain_step(model, optimizer, tokens):
    model(tokens).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()


def test_the_step_of_a_capture_has_rows_and_no_table_of_gradients():
    recording = captured(plain_step, torch.optim.SGD, torch.randint(0, ROWS, (4, 5)))
    [update] = [op for op in recording.ops if op.phase == "optimizer"]
    assert update.name == "aten.index_add_.default"
    assert [update.args[at].shape for at in (0, 2, 3)] == [(ROWS, WIDTH), (20,), (20, WIDTH)]
    made = [view.shape for op in recording.ops for view in op.results if not op.writes]
    assert (ROWS, WIDTH) not in made


@pytest.mark.parametrize("count", [20, 60])
def test_indices_that_are_not_known_are_assumed_to_differ(count):
    recording = captured(plain_step, tokens=torch.randint(0, ROWS, (count,)) + 0)
    update = [op for op in recording.ops if op.name.startswith("aten.pow")][-1]
    assert update.args[0].shape == (min(count, ROWS), WIDTH)
    [words] = recording.warnings
    assert f"{count} indices of {ROWS} rows are assumed to be {min(count, ROWS)} diff" in words


def sums_momentum(model, optimizer, tokens):
    optimizer.param_groups[0]["momentum"] = 0.9
    plain_step(model, optimizer, tokens)


def clips(model, optimizer, tokens):
    model(tokens).sum().backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)


def reduces(model, optimizer, tokens):
    model(tokens).sum().backward()
    torch.distributed.all_reduce(model.weight.grad)


def replicates(model, optimizer, tokens):
    torch.nn.parallel.DistributedDataParallel(model)


def two_dims(model, optimizer, tokens):
    places = torch.zeros(2, 3, dtype=torch.int64, device=tokens.device)
    torch.sparse_coo_tensor(places, torch.ones(3, device=tokens.device), (4, 4))


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (sums_momentum, "mul_.* takes a sparse gradient"),
        (clips, "norm.* takes a sparse gradient"),
        (reduces, "allreduce_.* takes a sparse gradient"),
        (replicates, "has embeddings with sparse=True: NCCL adds up no sparse"),
        (two_dims, "has indices for 2 dims"),
    ],
)
def test_what_is_not_captured_is_refused_by_line(step, words):
    with pytest.raises(FlintError, match=rf"(?s){words}.*") as refused:
        captured(step, torch.optim.SGD)
    assert "test_sparse_rows.py:" in str(refused.value)
