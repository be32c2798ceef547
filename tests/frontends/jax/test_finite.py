"""What programs say of finite numbers, against the same programs run on finite numbers."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

from flint.frontends.jax.internals.finite import said

X = jnp.linspace(-2.0, 3.0, 12).reshape(3, 4)


@jax.custom_jvp
def all_finite(tree):
    return jnp.all(jnp.array([jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(tree)]))


all_finite.defjvp(lambda primals, tangents: (all_finite(*primals), None))  # never used
ASKS = {
    "each": jnp.isfinite,
    "all": lambda x: jnp.isfinite(x).all(),
    "of a row": lambda x: jnp.isfinite(x).all(range(1, x.ndim)),
    "none is NaN": lambda x: jnp.all(~jnp.isnan(x)),
    "any NaN": lambda x: jnp.isnan(x).any(),
    "any infinite": lambda x: jnp.any(jnp.isinf(x)),
    "either": lambda x: jnp.logical_or(jnp.isnan(x).any(), jnp.isinf(x).any()),
    "of a sum": lambda x: jnp.isfinite(x.sum()) & True,
    "of a tree": lambda x: all_finite({"a": x, "b": x[0]}),
    "of integers": lambda x: jnp.isfinite(x.astype(int)).all(),
    "by rows": jax.vmap(lambda x: jax.jit(jnp.isfinite)(x).all()),
    "recomputed": jax.checkpoint(lambda x: jnp.isfinite(jnp.sin(x)).all()),
}


@pytest.mark.parametrize("ask", ASKS.values(), ids=ASKS)
def test_the_answer_is_that_of_finite_numbers(ask):
    [found] = said(jax.make_jaxpr(jax.jit(ask))(X), [None])
    assert found is not None
    assert (ask(X) == found).all()


OTHERS = {
    "positive": lambda x: (x > 0).all(),
    "equal": lambda x: x == x[::-1],
    "a mask": lambda x: jnp.isfinite(x) & (x > 0),
    "chosen": lambda x: jnp.where(x > 0, jnp.isfinite(x), x > 1),
}


@pytest.mark.parametrize("ask", OTHERS.values(), ids=OTHERS)
def test_other_questions_have_no_answer(ask):
    assert said(jax.make_jaxpr(ask)(X), [None]) == [None]


def test_an_answer_goes_on_through_a_later_program():
    asked = jax.make_jaxpr(lambda good, other: (good.all(), ~good, good & other))
    assert said(asked(X > 0, X > 1), [True, None]) == [True, False, None]
