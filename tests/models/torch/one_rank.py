"""One rank's program of a PyTorch model: recorded and emitted in a child, read here."""

from __future__ import annotations

import functools
from collections import Counter

from flint.mesh.group_names import axes_of
from flint.mesh.mesh import Mesh
from flint.stablehlo.options import WalkOptions
from flint.stablehlo.read.reader import read_mlir
from flint.stablehlo.walker import walk
from tests.frontends.torch.in_child import in_child


@functools.cache
def graph_of(capture):
    """The graph of rank 0 of a ``flint.capture``."""
    shape, axes, setup, _, _ = capture._flint
    data = in_child(_emitted, capture.__wrapped__, setup, shape, axes, 0)
    return walk(read_mlir(data, "step"), Mesh(shape, axes), WalkOptions(strict=True)).graph


def _emitted(*where):
    from flint.frontends.torch.emission import emitted
    from flint.frontends.torch.session import record

    return emitted(record(*where)).data


def kernels(graph):
    """Name of the ATen op without overload -> number of kernels."""
    return Counter(node.op.removeprefix("aten.").split(".")[0] for node in graph)


def matrix_products(graph):
    """Number of GEMM kernels."""
    found = kernels(graph)
    return sum(found[name] for name in ("mm", "addmm", "bmm", "baddbmm", "linear", "matmul"))


def attentions(graph):
    """Numbers of attention kernels on an H100: forward, backward."""
    found = kernels(graph)
    name = "_scaled_dot_product_cudnn_attention"
    return found[name], found[name + "_backward"]


def exchanges(capture):
    """(kind, mesh axes of the group) -> (count, operand bytes, result bytes) of rank 0."""
    shape, axes, *_ = capture._flint
    found = {}
    for node in graph_of(capture):
        item = node.communication
        if item is None:
            continue
        group = None if item.groups is None else axes_of(item.groups, Mesh(shape, axes))
        count, given, taken = found.get((item.kind, group), (0, 0, 0))
        given, taken = given + sum(item.operand_bytes), taken + sum(item.result_bytes)
        found[item.kind, group] = count + 1, given, taken
    return found
