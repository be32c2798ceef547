"""Pipelines whose first run takes one microbatch: the recorded step is the same as after all."""

from __future__ import annotations

import contextlib
from functools import partial

import pytest

torch = pytest.importorskip("torch")

from tests.frontends.torch import small_models as small  # noqa: E402
from tests.frontends.torch.in_child import in_child, record_in_child  # noqa: E402
from tests.support.shared import quick_rows  # noqa: E402

#: Schedule, stages of a rank, where they are; the last two issue gradients of weights apart.
SCHEDULES = [
    ("1F1B", 1, "loop"),
    ("GPipe", 1, "loop"),
    ("LoopedBFS", 2, "loop"),
    ("Interleaved1F1B", 2, "loop"),
    ("InterleavedZeroBubble", 2, "loop"),
    ("ZBVZeroBubble", 2, "V"),
    ("DualPipeV", 2, "V"),
]


def losses_and_scores(schedule, optimizers, tokens, first, last):
    """A step that looks at what the schedule returns: a loss and scores for each microbatch."""
    losses: list[torch.Tensor] = []
    given = [tokens[0]] if first else []
    scores = schedule.step(*given, **({"target": tokens[1], "losses": losses} if last else {}))
    if last:
        assert len(losses) == 4 and scores.shape[0] == tokens[1].shape[0]
        torch.stack(losses).mean()
        scores.argmax(-1).eq(tokens[1]).sum()
    for optimizer in optimizers:
        optimizer.step()
        optimizer.zero_grad()


def after_all(*args, **options):
    """A recording whose first run takes all microbatches."""
    from flint.frontends.torch import session

    session._rehearsal = contextlib.nullcontext
    return session.record(*args, **options)


@pytest.mark.parametrize("shard", [False, pytest.param(True, marks=pytest.mark.thorough)])
@pytest.mark.parametrize("kind,per_rank,places", quick_rows(SCHEDULES, SCHEDULES[0]))
def test_one_microbatch_creates_what_all_create(kind, per_rank, places, shard) -> None:
    """Ops, storages, lifetimes and communicators of the recorded step."""
    setup = partial(small.stages, kind=kind, per_rank=per_rank, places=places, shard=shard)
    mesh = ((2, 2), ("pp", "dp"), 2) if shard else ((2,), ("pp",), 1)
    step = losses_and_scores if places == "loop" else small.pipeline_step
    assert record_in_child(step, setup, *mesh) == in_child(after_all, step, setup, *mesh)


def test_the_first_run_takes_one_microbatch() -> None:
    """Of four; the recorded one takes all."""

    def run():
        from flint.frontends.torch import session

        counts = []

        def step(schedule, optimizers, *rest):
            counts.append(0)
            stage = schedule._stage
            forward = stage.forward_one_chunk

            def counted(*args, **options):
                counts[-1] += 1
                return forward(*args, **options)

            stage.forward_one_chunk = counted
            small.pipeline_step(schedule, optimizers, *rest)
            stage.forward_one_chunk = forward

        session.record(step, small.stages, (2,), ("pp",), 0)
        return counts

    assert in_child(run) == (1, 4)
