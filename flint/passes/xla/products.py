"""What XLA's GPU compiler fuses into the kernels of products, and what it does not.

The idea: its products are library calls or separate Triton kernels (``GemmFusion``), made before
anything else is fused.

- A batched product loads its operands in their layout: a transpose before or after it is a kernel.
  So is one behind any product that does more than transpose a matrix, and one that brings dims
  together which a product contracts as one.
- **Epilogue**: an elementwise op that alone reads the product, then the only reader of that, and so
  on: what several read is written, and each reads it. The other operands are scalars, parameters of
  the program or of a loop's body, and broadcasts of both (a bias, a residual that is a parameter);
  no op makes the result larger, like a conversion to f32.
- **Loads**: an op on one tensor, with constants or broadcast parameters, is computed by each
  product that loads its result if products are its only readers: a ReLU in front of two products.
- The epilogue of a convolution is one that cuDNN has: a bias, a residual, a rectified activation,
  conversions to narrower types (``cudnn_fused_conv_rewriter.cc``). What is added and is no bias (a
  number per feature) is a residual, also a broadcast, as of an embedding per image: a kernel
  writes it. A convolution that gives the gradient of its input (``_goes_back``) has none.

Sources: ``gemm_fusion.cc``, ``triton_tiling_propagation.cc`` of openxla/xla (2026).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from flint.graph.graph import NodeKind, WorkloadGraph
from flint.graph.work import Role
from flint.passes.xla.operands import beside
from flint.passes.xla.side_by_side import loaded_parts
from flint.passes.xla.split_broadcasts import with_split_broadcasts

#: Ops that may follow a convolution: the bias, a residual and rectified activations.
_BEHIND: Final = ("add", "convert", "reshape", "bitcast", "broadcast_in_dim", "maximum", "clamp")
#: Bytes by which an op's result may be larger than its operands, or smaller.
_TOLERANCE: Final = 1024


class Neighbours:
    """Which ops of one block the kernels of its products take in.

    Attributes:
        ends: the last op of each product's epilogue, -1 without one, shape [nodes].
        kept: ops of epilogues, shape [nodes].
        roots: the last op of each epilogue, and what makes residuals, shape [nodes].
        loaded: ops that every product that reads them computes, and nothing else reads, [nodes].
        spread: broadcasts that are written, because a convolution reads them as residuals.
    """

    def __init__(self, graph: WorkloadGraph) -> None:
        self.graph = graph
        ops = graph.tables.ops
        self.names = [ops[op] for op in graph.op.tolist()]
        self.role: list[int] = graph.role.tolist()
        self.sizes: list[int] = graph.value_bytes.tolist()
        self.maker: list[int] = graph.producer.tolist()
        self.elements = [graph.tables.types[kind].elements for kind in graph.value_type.tolist()]
        self.leaving = set(graph.outputs.tolist())
        self.users: dict[int, list[int]] = {}
        for value, node in zip(graph.operand.tolist(), graph.consumer.tolist(), strict=True):
            self.users.setdefault(value, []).append(node)
        self.free = (np.diff(graph.order_ptr) == 0) & (np.diff(graph.result_ptr) == 1)
        self.free[graph.order_node] = False
        self.passed = self._passed()
        self.ends = np.full(len(graph), -1, dtype=np.int64)
        self.kept, self.roots = np.zeros((2, len(graph)), dtype=bool)
        self.spread: list[int] = []
        for node in np.flatnonzero((graph.role == Role.CONTRACTION) & self.free).tolist():
            for after in self._epilogue(node):
                self.ends[node] = after
                self.kept[after] = True
        self.roots[self.ends[self.ends >= 0]] = True
        self.loaded = self._loaded()

    def _passed(self) -> list[bool]:
        """Values that are scalars, parameters, or broadcasts of them, shape [values]."""
        graph = self.graph
        passed = [True] * graph.inputs + [False] * (graph.values - graph.inputs)
        for node in range(len(graph)):
            operands = graph.operands_of(node).tolist()
            first, end = (graph.result_ptr[node : node + 2] + graph.inputs).tolist()
            made = self.role[node] == Role.GENERATE or (
                self.names[node] in ("broadcast_in_dim", "reshape")
                and len(operands) == 1
                and (passed[operands[0]] or self.elements[operands[0]] == 1)
            )
            passed[first:end] = [made] * (end - first)
        return passed

    def _epilogue(self, product: int) -> Iterator[int]:
        """The ops of a product's epilogue, in order."""
        graph, convolution = self.graph, self.names[product] == "convolution"
        if convolution and self._goes_back(product):
            return
        value = graph.inputs + int(graph.result_ptr[product])
        size, added, first = self.elements[value], False, True
        while len(self.users.get(value, ())) == 1 and value not in self.leaving:
            [user] = self.users[value]
            made = graph.inputs + int(graph.result_ptr[user])
            if not self.free[user] or self.elements[made] != size:
                return
            widens = self.names[user] == "convert" and self.sizes[made] > self.sizes[value]
            if convolution and widens:
                return
            others = [each for each in graph.operands_of(user).tolist() if each != value]
            if convolution and first and self._scales(user, others):
                pass  # by a number, which the library multiplies its result by
            elif convolution:
                tensors = [each for each in others if self.elements[each] >= size]
                tensors = [each for each in tensors if not self._is_bias(each)]
                if self.names[user] not in _BEHIND or len(tensors) + added > 1:
                    return
                if tensors and self.names[user] != "add":
                    return
                added = added or bool(tensors)
                # The library reads a residual from memory.
                makers = [self.maker[each] for each in tensors if self.maker[each] >= 0]
                self.roots[makers] = True
                self.spread += [each for each in makers if self.names[each] == "broadcast_in_dim"]
            elif not self._ends_in(user, others):
                return
            yield user
            value, first = made, False

    def _goes_back(self, product: int) -> bool:
        """Whether a convolution that nothing pads has a filter of several places, reversed."""
        graph = self.graph
        first = self.maker[int(graph.operand[graph.operand_ptr[product]])]
        if first >= 0 and self.names[first] == "pad":
            return False
        for value in graph.operands_of(product).tolist():
            while (maker := self.maker[value]) >= 0 and self.role[maker] == Role.MOVEMENT:
                value = int(graph.operand[graph.operand_ptr[maker]])
                if self.names[maker] == "reverse":
                    return bool(sum(size > 1 for size in graph.type_of(value).shape) > 2)
        return False

    def with_spread(self, graph: WorkloadGraph) -> WorkloadGraph:
        """The graph with broadcasts that are written as kernels that fuse with nothing."""
        if not self.spread:
            return graph
        role = graph.role.copy()
        role[self.spread] = Role.OPAQUE
        return replace(graph, role=role)

    def _is_bias(self, value: int) -> bool:
        """Whether a value is a broadcast of a scalar, or of a number per feature."""
        maker = self.maker[value]
        if maker < 0 or self.names[maker] != "broadcast_in_dim":
            return bool(self.passed[value]) and not self._whole(value)
        graph = self.graph
        kind = graph.tables.types[graph.value_type[graph.operands_of(maker)[0]]]
        return sum(size > 1 for size in kind.shape) <= 1 and len(kind.shape) <= 1

    def _scales(self, user: int, others: list[int]) -> bool:
        """Whether an op multiplies by a constant."""
        makers = [self.maker[each] for each in others]
        sources = [self.graph.operands_of(maker).tolist() for maker in makers if maker >= 0]
        return self.names[user] == "multiply" and any(
            self.names[maker] == "broadcast_in_dim"
            and self.role[self.maker[source[0]]] == Role.GENERATE
            for maker, source in zip(makers, sources, strict=False)
            if source and self.maker[source[0]] >= 0
        )

    def _whole(self, value: int) -> bool:
        """Whether a value that is passed in is no broadcast."""
        return self.maker[value] < 0

    def _ends_in(self, user: int, others: list[int]) -> bool:
        """Whether an op may be part of the epilogue of a product that is no convolution."""
        graph = self.graph
        made = graph.inputs + int(graph.result_ptr[user])
        if self.names[user] == "transpose":
            return self._is_matrix(made)
        if self.role[user] != Role.ELEMENTWISE or self.names[user] == "reduce":
            return False
        if not all(self.passed[each] for each in others):
            return False
        last = made in self.leaving or not self.users.get(made)
        read = sum(self.sizes[each] for each in graph.operands_of(user).tolist())
        return last or read - self.sizes[made] >= -_TOLERANCE

    def _is_matrix(self, value: int) -> bool:
        return len(self.graph.tables.types[self.graph.value_type[value]].shape) == 2

    def _loaded(self) -> NDArray[np.bool_]:
        graph = self.graph
        dots = [name == "dot_general" for name in self.names]
        found, inner = np.zeros((2, len(graph)), dtype=bool)
        moves = np.array([name in ("transpose", "slice") for name in self.names], dtype=bool)
        joins = loaded_parts(graph)
        moves[list(joins)] = True
        able = self.free & ((graph.role == Role.ELEMENTWISE) | moves)
        able &= ~self.kept & ~beside(graph) & ~with_split_broadcasts(graph)
        able &= graph.kind == NodeKind.COMPUTE
        for node in np.flatnonzero(able)[::-1].tolist():
            made = graph.inputs + int(graph.result_ptr[node])
            users = self.users.get(made, [])
            if not users or made in self.leaving:
                continue
            if all(dots[user] or inner[user] for user in users) and self._loads(node, made):
                found[node] = True
                inner[node] = self.names[node] != "concatenate"  # its parts are in memory
        return found

    def _loads(self, node: int, made: int) -> bool:
        """Whether an op reads hardly more than one tensor of its result's size."""
        operands = self.graph.operands_of(node).tolist()
        if self.names[node] == "transpose":
            return self._is_matrix(made)
        if self.names[node] == "concatenate":
            return True
        if self.names[node] == "slice":
            shape = self.graph.tables.types[self.graph.value_type[made]].shape
            alone = 1 in shape or len(self.users[made]) == 1
            return alone and self.maker[operands[0]] < 0
        tensors = [each for each in operands if not self.passed[each] or self._whole(each)]
        if len(tensors) != 1 or self.names[node] == "reduce":
            return False
        return len(operands) == 2 or self.sizes[tensors[0]] - self.sizes[made] <= _TOLERANCE
