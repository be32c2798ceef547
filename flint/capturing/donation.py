"""Which output takes the buffer of a donated parameter.

The idea: a module either states it (``tf.aliasing_output``) or leaves it to the compiler
(``jax.buffer_donor``, where the partitioner may still change sizes).  Then XLA pairs
donors with outputs of exactly their size, both in order of their numbers
(``OptimizeInputOutputBufferAlias``).

    donations({}, frozenset({0, 1}), graph)     # {0: 2, 1: 0}: parameter -> output
"""

from __future__ import annotations

from collections.abc import Mapping

from flint.graph.graph import WorkloadGraph


def donations(
    stated: Mapping[int, int], donors: frozenset[int], graph: WorkloadGraph
) -> dict[int, int]:
    """Parameter number -> index of the output in its buffer.

    Args:
        stated: the pairs that the module states.
        donors: parameters whose buffers any output may take.
        graph: the program, with the types of a device's part.
    """
    chosen = dict(stated)
    size = graph.value_bytes
    taken = set(chosen.values())
    sources = [n for n in sorted(donors) if n < graph.inputs and n not in chosen]
    targets = [index for index in range(len(graph.outputs)) if index not in taken]
    room: dict[int, list[int]] = {}
    for index in targets:
        room.setdefault(int(size[graph.outputs[index]]), []).append(index)
    for number in sources:
        fitting = room.get(int(size[number]))
        if fitting:
            chosen[number] = fitting.pop(0)
    return chosen
