"""Pipeline schedules as programs, stage by stage, with every microbatch written out.

What a stage does when follows the papers: GPipe (Huang et al., 2019), 1F1B (Narayanan et al.,
2019), interleaved 1F1B (Narayanan et al., 2021: 2 (P - s - 1) + (v - 1) P forward passes first),
and ZB-H1 (Qi et al., 2023), whose backward pass makes the gradients of the weights later than those
of the inputs.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from flint.cost.prices import Prices
from flint.cost.simplified import without
from flint.cost.systems import load_system
from flint.graph.building import GraphBuilder, TableBuilder
from flint.graph.communication import Communication
from flint.graph.graph import EdgeKind, WorkloadGraph, with_tables
from flint.graph.tensor_types import tensor_type
from flint.graph.work import NO_WORK, Role, Unit, Work, WorkItem
from flint.mesh.groups import StridedGroups
from flint.mesh.permutation import permutation
from flint.simulation.durations import Costs

TYPE = tensor_type((1024,), "bf16")
PRODUCT = Work((WorkItem(Unit.MATMUL, "bf16", 2048, (1, 32, 32, 1)),), 2048, 2048)
SUM = Work((WorkItem(Unit.VECTOR, "bf16", 1024),), 2048, 2048)
#: Forward, backward, of the backward pass the gradients of the weights; chunk; microbatch.
Action = tuple[str, int, int]


def one_forward_one_backward(stage: int, stages: int, microbatches: int) -> Iterator[Action]:
    ahead = min(stages - stage - 1, microbatches)
    for i in range(microbatches + ahead):
        if i < microbatches:
            yield "F", 0, i
        if i >= ahead:
            yield "B", 0, i - ahead


def gpipe(stage: int, stages: int, microbatches: int) -> Iterator[Action]:
    yield from (("F", 0, i) for i in range(microbatches))
    yield from (("B", 0, i) for i in range(microbatches))


def zero_bubble(stage: int, stages: int, microbatches: int) -> Iterator[Action]:
    made = 0
    for what, chunk, i in one_forward_one_backward(stage, stages, microbatches):
        yield what, chunk, i
        if what == "B" and i >= stage:
            yield "W", chunk, made
            made += 1
    yield from (("W", 0, i) for i in range(made, microbatches))


def interleaved(stage: int, stages: int, microbatches: int, chunks: int = 2) -> Iterator[Action]:
    total = microbatches * chunks
    ahead = min(2 * (stages - stage - 1) + (chunks - 1) * stages, total)

    def place(number: int, backward: bool) -> tuple[int, int]:
        group, within = divmod(number, stages * chunks)
        chunk = within // stages
        return chunks - 1 - chunk if backward else chunk, group * stages + within % stages

    for number in range(total + ahead):
        if number < total:
            yield "F", *place(number, False)
        if number >= ahead:
            yield "B", *place(number - ahead, True)


#: What a rank does, and how many parts of the model it has.
SCHEDULES = {
    "GPipe": (gpipe, 1),
    "1F1B": (one_forward_one_backward, 1),
    "ZB-H1": (zero_bubble, 1),
    "interleaved": (interleaved, 2),
}


def stage_program(
    kind: str, stage: int, stages: int, microbatches: int, width: int, in_order: bool
) -> WorkloadGraph:
    """What the ``width`` ranks of a stage do: a group of all of them in every pass, at the end a
    reduction over every stage's rank of the same place, and the losses put together.

    Kernels are ``in_order`` as on a stream; else one that is ready may overtake others.
    """
    schedule, chunks = SCHEDULES[kind]
    tables = TableBuilder()
    builder = GraphBuilder(tables)
    whole = tables.type(TYPE)
    batch, weight = builder.input(whole), builder.input(whole)
    world = stages * width
    size = (TYPE.bytes,)
    own = StridedGroups(world, ((width, 1),))
    across = StridedGroups(world, ((stages, width),)) if stages > 1 else own
    last = stages * chunks - 1
    way = {}
    for source in range(stages):
        for target in {(source + 1) % stages, (source - 1) % stages} - {source}:
            ranks = np.arange(width)
            pairs = np.stack([source * width + ranks, target * width + ranks], axis=1)
            way[source, target] = permutation(world, pairs)

    def message(source: int, target: int, value: int) -> int:
        if source == target:
            return value
        item = Communication(
            "collective_permute", None, None, way[source, target], size, size, ("bf16",)
        )
        return builder.communication(item, (value,), (TYPE,))[0]

    stream: list[int] = []

    def kernel(name: str, *operands: int, work: Work = PRODUCT) -> int:
        order = [(stream[-1], EdgeKind.STREAM)] if in_order and stream else []
        stream.append(len(builder))
        return builder.compute(name, Role.ELEMENTWISE, operands, (TYPE,), work, order)[0]

    kept: dict[tuple[int, int], int] = {}
    here: dict[tuple[str, int, int], int] = {}
    slopes: dict[tuple[int, int], int] = {}
    sums: dict[int, int] = {}
    for what, chunk, i in schedule(stage, stages, microbatches):
        number = chunk * stages + stage  # of the stage of the model
        if what == "F":
            value = batch
            if number:
                sender = (number - 1) % stages
                value = here["F", number, i] if sender == stage else message(sender, stage, batch)
            [view] = builder.compute("view", Role.ALIAS, (weight,), (TYPE,), NO_WORK)
            value = kernel(f"F{chunk}", value, view)
            item = Communication("all_reduce", "add", own, None, size, size, ("bf16",))
            (value,) = builder.communication(item, (value,), (TYPE,))
            kept[chunk, i] = value = kernel(f"G{chunk}", value)
            if number < last:
                receiver = (number + 1) % stages
                here["F", number + 1, i] = message(stage, receiver, value)
        elif what == "B":
            value = kept[chunk, i]
            if number < last:
                sender = (number + 1) % stages
                value = here["B", number, i] if sender == stage else message(sender, stage, batch)
            slopes[chunk, i] = value = kernel(f"B{chunk}", value, kept[chunk, i])
            if kind != "ZB-H1":
                sums[chunk] = kernel(f"S{chunk}", value, sums.get(chunk, weight))
            if number:
                receiver = (number - 1) % stages
                here["B", number - 1, i] = message(stage, receiver, value)
        else:
            sums[chunk] = kernel(f"W{chunk}", slopes[chunk, i], sums.get(chunk, weight))
    item = Communication("all_reduce", "add", across, None, size, size, ("bf16",))
    results = [builder.communication(item, (value,), (TYPE,))[0] for value in sums.values()]
    last_of_all = (kept[chunks - 1, i] for i in range(microbatches))
    results.append(kernel("losses", *last_of_all, work=SUM))
    return with_tables(builder.finish(results), tables.finish())


def pipeline(
    kind: str, stages: int, microbatches: int, width: int = 2, in_order: bool = True
) -> list[tuple[WorkloadGraph, np.ndarray]]:
    """Programs and their ranks."""
    return [
        (
            stage_program(kind, stage, stages, microbatches, width, in_order),
            stage * width + np.arange(width),
        )
        for stage in range(stages)
    ]


class CostsByName(Costs):
    """Durations that depend on what a node does and on the stage that does it."""

    def __init__(self, seed: int, longest: int, beside: float = 1.0) -> None:
        super().__init__(Prices(without(load_system("dgx-h100"), ("contention",))))
        self.seed, self.longest = seed, longest

    def ticks(self, item, unrolled, emission, rank):
        ops = unrolled.graphs[0].tables.ops
        spent = []
        for op in ops:
            key = [self.seed, int(item.ranks[0]), *op.encode()]
            spent.append(int(np.random.default_rng(key).integers(0, self.longest)))
        names = unrolled.column("op")[unrolled.template[emission.instance]]
        views = names == (ops.index("view") if "view" in ops else -1)
        return np.where(views, 0, np.array(spent, np.int64)[names] + emission.type)
