"""Text of captured programs for people: made when a workload is saved, once for each program."""

from __future__ import annotations

import jax
import jax.numpy as jnp

import flint
from flint.frontends.jax import compiled
from flint.frontends.jax.lower.listing import listing_of_hlo


def test_a_program_is_written_as_text_once_however_often_it_is_called(monkeypatch, tmp_path):
    made = []

    def counted(proto):
        made.append(proto)
        return listing_of_hlo(proto)

    monkeypatch.setattr(compiled, "listing_of_hlo", counted)
    doubled = jax.jit(lambda x: x * 2)

    def step(x):
        first, second = (doubled(x) for _ in range(2))
        return first, jax.jit(jnp.sin)(second)

    workload = flint.capture(step, mesh=(2,)).capture(jax.ShapeDtypeStruct((8, 8), jnp.float32))
    assert made == []
    workload.save(tmp_path / "out")
    texts = [file.read_text() for file in (tmp_path / "out/programs").glob("*.mlir")]
    assert sum("stablehlo.multiply" in text for text in texts) == 2
    assert sum("stablehlo.sine" in text for text in texts) == 1
    assert len(made) == len(set(made)) == 2
