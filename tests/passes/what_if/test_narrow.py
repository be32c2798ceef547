"""Narrowing: bytes of gathers of weights, by hand."""

from __future__ import annotations

from flint.passes.what_if import same, transform
from tests.passes.what_if.layers import payload, recorded, sharded_layers, sizes
from tests.passes.what_if.test_decompose import gathered


def test_gathers_of_weights_send_half_of_bf16() -> None:
    graph = sharded_layers(2).graph
    before, after = payload(graph), payload(transform(graph, ["narrow"]))
    changed = {kind for kind in before if after[kind] != before[kind]}
    assert changed == {"all_gather in", "all_gather out"}
    assert all(2 * after[kind] == before[kind] for kind in changed)


def test_activations_and_gradients_stay() -> None:
    assert sizes(transform(gathered(), ["narrow:bits=8"])) == sizes(gathered())
    assert same(recorded(3), transform(recorded(3), ["narrow"]))


def test_types_that_are_not_wider_stay() -> None:
    graph = sharded_layers(2).graph
    for bits in (16, 64):
        assert payload(transform(graph, [f"narrow:bits={bits}"])) == payload(graph)
