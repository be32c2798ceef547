"""What the checker accepts finishes under any durations; what it refuses sometimes hangs."""

from __future__ import annotations

import numpy as np
import pytest

from flint.converters.chakra.check.checker import Severity, check_traces
from flint.converters.chakra.read.trace_set import TraceSet
from tests.converters.chakra.check.traces import AG, AR, coll, comp, in_memory, recv, send
from tests.converters.chakra.consumer import execute
from tests.support.shared import quick

NETWORKS = ((2,), (3,), (2, 2), (2, 3))


def random_set(generator: np.random.Generator, thorough: float, orderly: float) -> TraceSet:
    """A random program of collectives and messages, as every rank sees it, some edges left out.

    Operations are drawn in one global order, which each rank keeps but for a swap of neighbours
    with probability 1 - `orderly`.  A node depends on random earlier nodes of its rank, and with
    probability `thorough` a COLL or SEND on the one before it.
    """
    network = NETWORKS[generator.integers(len(NETWORKS))]
    size = int(np.prod(network))
    operations = [_operation(generator, step, network) for step in range(generator.integers(2, 9))]
    ranks = []
    for rank in range(size):
        order = list(range(len(operations)))
        if generator.random() > orderly:
            at = int(generator.integers(len(order) - 1))
            order[at : at + 2] = order[at + 1], order[at]
        ranks.append(_program(generator, rank, [operations[at] for at in order], thorough))
    return in_memory(ranks, npus=network)


def _operation(generator: np.random.Generator, step: int, network: tuple[int, ...]):
    size = int(np.prod(network))
    choice = generator.random()
    if choice < 0.55:
        mask = [bool(bit) for bit in generator.integers(0, 2, len(network))]
        if not any(mask):
            mask[generator.integers(len(mask))] = True
        return mask, AR if choice < 0.4 else AG, int(generator.integers(1, 3)) * 64
    tag = step if generator.random() < 0.8 else 0
    if choice < 0.8:
        return tag, [tuple(generator.choice(size, 2, replace=False).tolist())]
    return tag, [(rank, (rank + 1) % size) for rank in range(size)]


def _program(generator: np.random.Generator, rank: int, operations: list, thorough: float) -> list:
    nodes: list = []
    last: list[int] = []

    def deps(*, slot: bool) -> list[int]:
        count = int(generator.integers(0, 3)) if nodes else 0
        chosen = {int(generator.integers(len(nodes))) for _ in range(count)}
        if slot:
            if last and generator.random() < thorough:
                chosen.add(last[-1])
            last.append(len(nodes))
        return sorted(chosen)

    for operation in operations:
        if generator.random() < 0.5:
            nodes.append(comp(len(nodes), deps(slot=False)))
        if len(operation) == 3:
            mask, kind, bytes_ = operation
            made = coll(len(nodes), deps(slot=True), kind, bytes_, involved_dim=mask)
            nodes.append(made)
            continue
        tag, pairs = operation
        for src, dst in pairs:
            if src == rank:
                nodes.append(send(len(nodes), dst, deps(slot=True), tag))
        for src, dst in pairs:
            if dst == rank:
                nodes.append(recv(len(nodes), src, deps(slot=False), tag))
    return nodes or [comp(0)]


@pytest.mark.parametrize("batch", quick(range(8), 0))
def test_accepted_sets_finish_and_refused_ones_hang(batch, record_property):
    generator = np.random.default_rng(batch)
    accepted = refused = hung = 0
    for number in range(60):
        traces = random_set(
            generator,
            thorough=(1.0, 0.97, 0.8, 0.3)[number % 4],
            orderly=1.0 if number % 3 else 0.8,
        )
        report = check_traces(traces)
        fired = {item.rule for item in report.findings if item.severity is Severity.ERROR}
        runs = [execute(traces, seed=seed) for seed in range(12)]
        if report.ok:
            accepted += 1
            for result in runs:
                assert result.complete, (report, result.stuck, result.mispaired)
        else:
            refused += 1
            hung += not all(result.complete for result in runs)
        if fired in ({"cross-rank-cycle"}, {"p2p-match"}, {"group-sequence"}):
            wrong = [not result.complete or fired == {"p2p-match"} for result in runs]
            assert all(wrong), (report, runs)
    record_property("accepted, refused, of those seen hanging", (accepted, refused, hung))
    print(f"accepted {accepted}, refused {refused}, of those seen hanging {hung}")
    assert accepted >= 10 and refused >= 10 and hung >= 5
