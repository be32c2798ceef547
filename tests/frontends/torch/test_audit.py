"""The audit: ranks chosen at random do the same as their class, or the capture stops."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402

import flint  # noqa: E402
from flint.errors import FlintError, UsageError  # noqa: E402
from flint.frontends.torch.ranks.audit import chosen, default_count  # noqa: E402

#: Repetitions by rank; no comparison shows that the one of rank 5 is another.
TIMES = [1] * 5 + [2] + [1] * 10


def vector(mesh):
    return (torch.randn(8, 8, device=mesh.device_type),)


def by_table(x):
    for _ in range(TIMES[dist.get_rank()]):
        x = x @ x
    return x + 1


def captured(step, audit=None, setup=vector):
    step = flint.capture(step, mesh=(16,), axes=("dp",), setup=setup)
    return step.capture(options={} if audit is None else {"audit": audit})


def test_a_rank_that_does_something_else_is_named_with_the_first_op_that_differs():
    with pytest.raises(FlintError) as raised:
        captured(by_table, audit=16)
    text = str(raised.value)
    assert text.startswith("rank 5 does not do what rank 0 does")
    # The second product stands where the others add.
    assert "op 1 is aten.mm.default at " in text and ", not aten.add.Tensor at " in text
    assert "test_audit.py:" in text and ", and rank" not in text


def test_none_are_audited_where_that_is_asked_for():
    workload = captured(by_table, audit=0)
    assert workload.input["ranks audited"] == "none"
    assert len(workload.programs) == 1


@pytest.mark.thorough
def test_what_was_audited_is_noted_and_the_same_every_time():
    def step(x):
        return x @ x

    first, second = (captured(step, audit=3).input["ranks audited"] for _ in range(2))
    assert first == second and first.endswith(" of 16") and first.count(",") == 2


@pytest.mark.parametrize("recorded", range(1, 40))
def test_by_default_an_audit_costs_less_than_a_fifth(recorded):
    count = default_count(recorded)
    assert count / recorded < 1 / 5 <= (count + 1) / recorded


def test_ranks_are_chosen_among_those_that_are_not_recorded():
    ranks = chosen(64, {0, 31, 63}, 61, b"seed")
    assert ranks == sorted(set(range(64)) - {0, 31, 63})
    assert chosen(8, set(range(8)), 3, b"seed") == []
    assert chosen(1 << 20, {0}, 4, b"a") != chosen(1 << 20, {0}, 4, b"b")


def test_a_negative_number_of_ranks_is_refused():
    with pytest.raises(UsageError, match="audit=-1"):
        captured(by_table, audit=-1)


def test_an_audit_of_a_jax_program_is_refused():
    jax = pytest.importorskip("jax")
    step = flint.capture(lambda x: x + 1, mesh=(2,), axes=("x",), framework="jax")
    with pytest.raises(UsageError, match=r"audit.*PyTorch"):
        step.capture(jax.ShapeDtypeStruct((4,), "float32"), options={"audit": 2})
