"""Gains of causes, compared with steps that were changed before they were simulated."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import flint
from flint.cost.classes import KERNELS, kernel_classes
from flint.explaining.explaining import explain
from flint.graph.graph import NodeKind
from flint.graph.partners import partners
from flint.post_execution.node_work import with_nanoseconds
from flint.simulation.durations import Costs
from flint.simulation.running import simulate
from tests.support.shared import quick

OPTIMIZED = Path(__file__).parents[1] / "data" / "optimized"


def with_free_kernels(graph, kind):
    """A graph whose kernels of a class were measured to take no time, in loops too."""
    chosen = (graph.kind == NodeKind.COMPUTE) & (kernel_classes(graph) == KERNELS.index(kind))
    loops = tuple(replace(each, body=with_free_kernels(each.body, kind)) for each in graph.loops)
    return replace(with_nanoseconds(graph, np.where(chosen, 0, -1)), loops=loops)


@pytest.mark.parametrize("name", quick(["gpu_llama", "gpu_pipeline"], "gpu_llama"))
def test_the_gain_of_each_cause_is_that_of_a_step_in_which_it_takes_no_time(name, monkeypatch):
    """Steps that XLA compiled, changed before they are simulated: kernels of a class were measured
    to take no time, or communications of a kind cost nothing.
    """
    workload = flint.convert(OPTIMIZED / f"{name}.hlo.pb.gz")
    costs = Costs.ticks
    for cause in explain(workload).causes:
        changed, kind = workload, cause.name.removesuffix(" kernels")

        def without(self, item, unrolled, emission, rank, name=cause.name):
            """The ticks of nodes, 0 for communications that are called so."""
            detail = unrolled.detail[emission.instance]
            named = [
                f"{each.kind.replace('_', '-')} over {partners(each, workload.mesh)}" == name
                for each in item.graph.tables.communications
            ]
            talks = (detail >= 0) & np.array([*named, False])[detail]
            return np.where(talks, 0, costs(self, item, unrolled, emission, rank))

        with monkeypatch.context() as patch:
            if cause.sort == "communication":
                patch.setattr(Costs, "ticks", without)
            else:
                programs = [
                    replace(program, graph=with_free_kernels(program.graph, kind))
                    for program in workload.programs
                ]
                changed = replace(workload, programs=tuple(programs))
            found = simulate(changed, workload.usual_system).step_seconds
        assert found == pytest.approx(cause.step_seconds, rel=1e-6), cause.name
