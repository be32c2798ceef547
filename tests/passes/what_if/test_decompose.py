"""Decomposing: times and sizes of products beside the exchange of their rows, by hand."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from flint.cost.kernels import kernel_seconds
from flint.cost.prices import Prices
from flint.cost.simplified import without
from flint.cost.systems import load_system
from flint.graph.graph import EdgeKind, NodeKind, WorkloadGraph, with_tables
from flint.graph.tensor_types import tensor_type
from flint.graph.work import Role, Unit, Work, WorkItem
from flint.mesh.groups import from_table
from flint.mesh.mesh import Mesh
from flint.passes.what_if import same, transform
from tests.passes.building import Graph
from tests.passes.what_if.layers import needs, recorded, sharded_layers
from tests.simulation.test_simulate import workload_of

RANKS, ROWS, WIDTH = 8, 8192, 4096
PART = tensor_type((ROWS // RANKS, WIDTH), "bf16")
ALL = tensor_type((ROWS, WIDTH), "bf16")
WEIGHT = tensor_type((WIDTH, WIDTH), "bf16")
ITEM = WorkItem(Unit.MATMUL, "bf16", 2 * ROWS * WIDTH * WIDTH, (1, ROWS, WIDTH, WIDTH))
PRODUCT = Work((ITEM,), ALL.bytes + WEIGHT.bytes, ALL.bytes)


def ideal(share: float):
    """DGX H100 with perfect kernels and, within a node, a network without latency of a share of
    its bandwidth."""
    system = without(load_system("dgx-h100"), ("contention", "launches", "protocols"))
    accelerator = system.accelerator
    (tile,) = {t for t in accelerator.kernel.tiles if (t.m, t.n) == (128, 128)}
    kernel = replace(accelerator.kernel, units=1, tiles=(tile,), latency=0.0)
    accelerator = replace(accelerator, kernel=kernel, launch_overhead=0.0)
    inner, *outer = system.network
    inner = replace(inner, latency=0.0, bandwidth=inner.bandwidth * share)
    return replace(system, accelerator=accelerator, network=(inner, *outer))


def activations(g: Graph) -> int:
    """Rows of a rank that are no weights: a reduction, which takes no time here, made them."""
    return g.op("norm", Role.REDUCTION, (g.input(PART),), PART)


def gathered() -> WorkloadGraph:
    """Rows of all ranks, copied, times a weight."""
    g = Graph()
    rows, weight = activations(g), g.input(WEIGHT)
    whole = g.communicate("all_gather", rows, PART, ALL)
    order = g.move(whole, ALL, ALL)
    return g.finish(g.op("dot_general", Role.CONTRACTION, (order, weight), ALL, PRODUCT))


def scattered() -> WorkloadGraph:
    """The rows of a product, added to others, summed up over the ranks."""
    g = Graph()
    rows, weight, other = g.input(ALL), g.input(WEIGHT), g.input(ALL)
    made = g.op("dot_general", Role.CONTRACTION, (rows, weight), ALL, PRODUCT)
    made = g.elementwise(made, other, of=ALL)
    some = g.communicate("reduce_scatter", made, ALL, PART)
    return g.finish(g.op("dot_general", Role.CONTRACTION, (some, weight), PART, PRODUCT))


def seconds(graph: WorkloadGraph, system) -> float:
    workload = workload_of(graph, mesh=Mesh((RANKS,), ("tp",)))
    return workload.simulate(system, passes=["decompose"]).step_seconds


def message(system) -> float:
    tier = system.network[0]
    return PART.bytes / (tier.bandwidth * tier.efficiency)


@pytest.mark.parametrize("share", [1.0, 0.02])
def test_a_gather_hides_behind_its_product_or_the_product_behind_it(share):
    """Eight parts of a product, of which the first needs no message and the last the last one.

    A message of 8 MiB takes 24 us at full bandwidth, a part of the product more, and at a fiftieth
    of the bandwidth much less.
    """
    system = ideal(share)
    part = 2 * ROWS * WIDTH * WIDTH / RANKS
    kernel = system.accelerator.kernel
    rate = system.accelerator.matmul["bf16"] * kernel.matmul_efficiency * kernel.tiles[0].efficiency
    product, sent = part / rate, message(system)
    assert (sent < product) == (share == 1.0)
    expected = RANKS * product if sent < product else (RANKS - 1) * sent + product
    assert seconds(gathered(), system) == pytest.approx(expected, rel=1e-6)


def test_parts_are_sent_as_soon_as_they_are_made_and_added_at_the_end():
    """Where messages take longest: the first part, whose addition is done by the product's kernel,
    seven messages, the sum of eight parts of 1024 x 4096, and the product of it."""
    system = ideal(0.02)
    graph = transform(scattered(), ["decompose"])
    kernels = kernel_seconds(graph, system)
    ops = [node.op for node in graph]
    first = kernels[ops.index("dot_general")]
    added, last = ops.index("reduce"), len(ops) - 1
    assert graph.bytes_read[added] == 8 * PART.bytes
    assert graph.bytes_written[added] == PART.bytes
    expected = first + (RANKS - 1) * message(system) + kernels[added] + kernels[last]
    assert seconds(scattered(), system) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("graph", [gathered(), scattered()], ids=["gathered", "scattered"])
def test_flops_payload_and_dependences_stay(graph):
    """A ring's rank sends the parts of all others but one: (n - 1) / n of the whole."""
    found = transform(graph, ["decompose"])

    def products(graph):
        return graph.work_flops[graph.work_unit == Unit.MATMUL].sum()

    assert products(found) == products(graph)
    table = found.tables.communications
    sent = [table[i] for i in found.detail[found.kind == NodeKind.COMMUNICATION].tolist()]
    assert [item.kind for item in sent] == ["collective_permute"] * (RANKS - 1)
    assert sum(item.bytes_in for item in sent) == ALL.bytes * (RANKS - 1) // RANKS
    assert len({item.permutation.shift for item in sent}) == RANKS - 1
    # The copy is gone: rows arrive where they belong.
    added = {pair for pair in needs(found) if not {"reduce", "concatenate"} & {*pair}}
    assert added == {pair for pair in needs(graph) if "transpose" not in pair}


def test_every_part_of_a_product_reads_its_rows_and_the_whole_weight():
    found = transform(gathered(), ["decompose"])
    parts = [node for node in found if node.op == "dot_general"]
    # Eight of them run beside each other: their tiles share the units.
    assert Counter(node.work.items[0].dims for node in parts) == {(8, 1024, 4096, 4096): 8}
    assert {node.work.read for node in parts} == {PART.bytes + WEIGHT.bytes}
    assert {node.work.written for node in parts} == {PART.bytes}


def test_parts_fill_the_units_as_the_whole_product_does():
    """A part alone has 128 tiles of 128 x 256 for 100 units, two waves; eight parts have 11."""
    system = load_system("dgx-h100")
    kernel = replace(system.accelerator.kernel, units=100, latency=0.0)
    device = replace(system.accelerator, kernel=kernel, launch_overhead=0.0)
    found = transform(gathered(), ["decompose"])
    rate = device.matmul["bf16"] * kernel.matmul_efficiency / 100
    times = kernel_seconds(found, replace(system, accelerator=device))
    products = times[[node.op == "dot_general" for node in found]]
    assert products.tolist() == pytest.approx([11 / 8 * 2 * 128 * 256 * WIDTH / rate] * 8)


def test_kernels_beside_messages_that_copy_engines_send_keep_their_speed():
    system = load_system("dgx-h100")
    found = transform(gathered(), ["decompose"])
    whole, parts = (
        [g.tables.communications[i] for i in g.detail[g.kind == NodeKind.COMMUNICATION].tolist()]
        for g in (gathered(), found)
    )
    prices = Prices(system)
    assert {prices.speed_beside(item, 0) for item in parts} == {1.0}
    assert prices.speed_beside(whole[0], 0) == system.accelerator.kernel.beside_communication


def test_gathers_of_weights_and_reductions_of_gradients_stay_whole():
    for graph in (sharded_layers(2).graph, recorded(3)):
        assert same(graph, transform(graph, ["decompose"]))


def test_groups_of_more_ranks_stay_whole():
    assert same(gathered(), transform(gathered(), ["decompose:ranks=4"]))


def test_groups_of_unlike_sizes_stay_whole():
    graph = gathered()
    (item,) = graph.tables.communications
    unlike = from_table(RANKS + 1, np.array([[*range(RANKS)], [RANKS] + [-1] * (RANKS - 1)]))
    tables = replace(graph.tables, communications=(replace(item, groups=unlike),))
    graph = with_tables(graph, tables)
    assert same(graph, transform(graph, ["decompose"]))


def test_a_product_whose_weight_comes_after_the_gather_is_done_in_parts_where_it_stands():
    g = Graph()
    rows, weight = activations(g), g.input(WEIGHT)
    whole = g.communicate("all_gather", rows, PART, ALL)
    late = g.elementwise(weight, of=WEIGHT, name="late")
    graph = g.finish(g.op("dot_general", Role.CONTRACTION, (whole, late), ALL, PRODUCT))
    ops = [node.op for node in transform(graph, ["decompose"])]
    assert ops[-9:] == ["dot_general"] * 8 + ["concatenate"]
    assert ops.index("late") < ops.index("dot_general")


def test_kernels_between_two_products_of_one_gather_follow_both():
    """On one stream: product, activation, product. The second's parts go before the activation."""
    g = Graph()
    rows, one, two = activations(g), g.input(WEIGHT), g.input(WEIGHT)
    whole = g.communicate("all_gather", rows, PART, ALL)
    first = g.op("dot_general", Role.CONTRACTION, (whole, one), ALL, PRODUCT)
    active = g.elementwise(first, of=ALL, name="exp", order=[(g.last, EdgeKind.STREAM)])
    order = [(g.last, EdgeKind.STREAM)]
    second = g.op("dot_general", Role.CONTRACTION, (whole, two), ALL, PRODUCT, order)
    graph = g.finish(g.elementwise(active, second, of=ALL, order=[(g.last, EdgeKind.STREAM)]))
    ops = [node.op for node in transform(graph, ["decompose"])]
    assert ops.count("dot_general") == 16
    assert ops.index("exp") > max(np.flatnonzero(np.array(ops) == "dot_general"))
