"""What depends on what, computed by running a program instead of looking at its columns.

An independent reference for the passes: every value is the set of things that it was made from
(communication instances and program inputs), loops are run iteration by iteration, conditionals
take their branch.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from flint.graph.graph import EdgeKind, WorkloadGraph
from flint.graph.nodes import Node

Made = frozenset[object]
NOTHING: Made = frozenset()


@dataclass
class Run:
    """One execution.

    Attributes:
        needs: communication instance (table index, iterations so far) -> what it waited for.
        outputs: what each program output was made from.
    """

    needs: dict[object, Made] = field(default_factory=dict)
    outputs: list[Made] = field(default_factory=list)

    def among_communications(self) -> dict[object, Made]:
        """``needs`` without program inputs."""
        return {key: _communications(made) for key, made in self.needs.items()}

    def communications_of_outputs(self) -> list[Made]:
        return [_communications(made) for made in self.outputs]


def _communications(made: Made) -> Made:
    return frozenset(item for item in made if not (isinstance(item, tuple) and item[0] == "input"))


def execute(graph: WorkloadGraph) -> Run:
    """Run a program from its inputs; each result of a node waits for all its operands."""
    run = Run()
    inputs: list[Made] = [frozenset({("input", i)}) for i in range(graph.inputs)]
    run.outputs, _ = _Machine(run).block(graph, inputs, NOTHING, ())
    return run


@dataclass
class _Machine:
    run: Run

    def block(
        self, graph: WorkloadGraph, inputs: list[Made], start: Made, path: tuple[object, ...]
    ) -> tuple[list[Made], Made]:
        """What the outputs are made from, and what the end of the block has waited for."""
        values = list(inputs)
        done: list[Made] = []
        for node in graph:
            order = [edge for edge in node.edges if edge.kind != EdgeKind.DATA]
            held = start.union(*(done[edge.producer] for edge in order))
            results, after = self.node(node, [values[v] for v in node.operands], held, path)
            values.extend(results)
            done.append(after)
        return [values[value] for value in graph.outputs], start.union(*done)

    def node(
        self, node: Node, operands: list[Made], held: Made, path: tuple[object, ...]
    ) -> tuple[list[Made], Made]:
        """What each result is made from, and what the node has waited for when it is done."""
        all_of_it = held.union(*operands)
        detail = int(node.graph.detail[node.index])
        if node.communication is not None:
            assert (detail, path) not in self.run.needs, "one communication issued twice"
            self.run.needs[detail, path] = all_of_it
            all_of_it |= {(detail, path)}
        elif node.loop is not None:
            carried = operands[: node.loop.carried]
            invariant = operands[node.loop.carried :]
            for turn in range(node.loop.trip_count):
                inner = (*path, detail, turn)
                carried, end = self.block(node.loop.body, [*carried, *invariant], held, inner)
                all_of_it |= end
            return [held | made for made in carried], all_of_it
        return [all_of_it] * len(node.results), all_of_it
