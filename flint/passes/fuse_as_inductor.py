"""Granularity ``inductor``: the kernels of PyTorch's compiler."""

from __future__ import annotations

import numpy as np

from flint.graph.graph import NodeKind, WorkloadGraph
from flint.passes.columns import with_bodies
from flint.passes.fuse import assigned, fused
from flint.passes.made_of_less import made_of_less
from flint.passes.multi_output import join_outputs
from flint.passes.rematerialize import FUSIBLE, loads, look_through


def fuse_as_inductor(graph: WorkloadGraph) -> WorkloadGraph:
    """The same as PyTorch's compiler: activations that every reader makes again, and kernels of
    several results (``flint.passes.multi_output``).
    """
    communicates = any((block.kind == NodeKind.COMMUNICATION).any() for block, _ in graph.walk())
    return _as_inductor(graph, False, communicates)


def _as_inductor(graph: WorkloadGraph, body: bool, communicates: bool) -> WorkloadGraph:
    graph = with_bodies(graph, lambda inner, _: _as_inductor(inner, True, communicates))
    if not np.isin(graph.role, FUSIBLE).any():
        return graph
    seen = look_through(graph, made_of_less(graph, functions=True))
    kernels, _ = fused(seen, assigned(seen, loads(seen.graph).tolist(), lambda *_: True))
    communicated = [body and communicates] * kernels.inputs
    return join_outputs(kernels, communicated, phases=True)
