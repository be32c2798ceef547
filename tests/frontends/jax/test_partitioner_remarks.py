"""The partitioner's log becomes one counted warning."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import flint
from flint.frontends.jax.partition.remarks import remarks

#: As XLA (jaxlib 0.10.2) writes it, shardings shortened.
LINE = (
    "W1121 05:52:20.295859   26651 spmd_partitioner.cc:656] [SPMD] Involuntary full "
    "rematerialization. The compiler cannot go from sharding {devices=[1,1,2,4]<=[8]} to "
    "{devices=[4,1,1,2]<=[8]} efficiently for HLO operation %gather = f32[4,32,32]{2,1,0} "
    'gather(%a, %b), offset_dims={2}, sharding={devices=[1,1,2,4]<=[8]}, metadata={op_name="'
    'jit(step)/jvp(embedding)/gather" stack_frame_id=12}. As the last resort, SPMD will '
    "replicate the tensor and then partition it."
)


def test_a_log_without_remarks_says_nothing():
    assert remarks("I1121 cpu client\nW1121 something else\n") == {}


def test_equal_remarks_are_one_warning_that_names_the_places():
    [(text, count)] = remarks("\n".join([LINE, LINE, LINE.replace("gather", "slice")])).items()
    assert count == 3
    assert "embedding/gather f32[4,32,32], embedding/slice f32[4,32,32]" in text


def test_many_places_are_not_sprayed():
    lines = [LINE.replace("embedding", f"layer_{n}") for n in range(20)]
    [(text, count)] = remarks("\n".join(lines)).items()
    assert count == 20
    assert "and 17 more" in text


def test_a_step_that_makes_the_partitioner_replicate_warns():
    """A table split over rows and columns, looked up by tokens that are split over the rows' axis:
    the result would have to change both splits at once."""

    def arguments(mesh):
        def place(shape, dtype, *spec):
            return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, P(*spec)))

        return (
            place((256, 64), jnp.float32, "model", "data"),
            place((8, 32), jnp.int32, "replica"),
        )

    def step(table, tokens):
        with jax.named_scope("embedding"):
            return jax.lax.with_sharding_constraint(
                table[tokens], P(("replica", "data"), None, None)
            )

    captured = flint.capture(
        step, mesh=(2, 2, 2), axes=("replica", "data", "model"), setup=arguments
    ).capture()
    [text] = [text for text in captured.warnings if "rematerialization" in text]
    assert "embedding" in text
