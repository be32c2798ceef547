"""The decorator is tested on the steps of the JAX frontend."""

from tests.frontends.jax.conftest import captured, steps

__all__ = ["captured", "steps"]
