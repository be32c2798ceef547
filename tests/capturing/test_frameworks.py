"""The framework of a step, by what its code uses; a setup may make nothing."""

from __future__ import annotations

import functools

import jax
import pytest

import flint
from flint.capturing.frameworks import uses
from flint.errors import UsageError
from flint.registry import FRAMEWORKS

torch = pytest.importorskip("torch")


def jax_step(x):
    return jax.numpy.sin(x)


def torch_step(x):
    return torch.sin(x)


def below(x):
    return torch_step(x)


def plain(x):
    return x + 1


def imports_inside(x):
    import optax

    return optax.adamw(x)


class Net(torch.nn.Module):
    def forward(self, x):
        return x


def builds(mesh):
    return Net()


def annotated(mesh: torch.nn.Module):
    return mesh


@pytest.mark.parametrize(
    ("function", "found"),
    [
        (jax_step, {"jax"}),
        (jax.jit(jax_step), {"jax"}),
        (torch_step, {"torch"}),
        (functools.partial(torch_step, 1), {"torch"}),
        (below, {"torch"}),
        (plain, set()),
        (imports_inside, {"jax"}),
        (builds, {"torch"}),
        (annotated, {"torch"}),
        (lambda x: [torch.sin(y) for y in x], {"torch"}),
        (None, set()),
    ],
)
def test_what_the_code_names_tells(function, found):
    assert uses(function, FRAMEWORKS) == found


def test_a_setup_that_returns_nothing_makes_no_arguments():
    at = flint.capture(mesh=(2,), axes=("x",), setup=lambda mesh: None)
    assert at(lambda: jax.numpy.ones((8,)).sum()).capture().programs[0].inputs == ()
    with pytest.raises(UsageError, match=r"takes arguments \(missing a required argument: 'x'"):
        at(lambda x: x).capture()
