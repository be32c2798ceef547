"""Costs of custom calls, of which XLA's analysis knows nothing: from their shapes alone."""

from __future__ import annotations

import math
from typing import NamedTuple

from flint.hlo import hlo_pb2 as pb
from tests.hlo.optimized.single import Cost, Kernel

#: Bytes of an element by XLA's number of its type.
BYTES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 2, 8: 4, 9: 8, 10: 2, 11: 4, 12: 8, 16: 2}
TUPLE, S8 = 13, 2

#: They name a place or join two halves that lie there already: nothing moves.
NOTHING = ("AllocateBuffer", "X64Combine")
#: Beginning and end of a collective that overlaps other kernels: it is a communication.
COLLECTIVES = ("AsyncCollectiveStart", "AsyncCollectiveDone")
#: Inverts triangles.
INVERSE = "InvertDiagBlocksLowerTriangular"


class Bounds(NamedTuple):
    """What a cost lies between, both included."""

    least: Cost
    most: Cost


def leaves(shape: pb.ShapeProto) -> list[pb.ShapeProto]:
    if shape.element_type != TUPLE:
        return [shape]
    return [leaf for part in shape.tuple_shapes for leaf in leaves(part)]


def elements(shape: pb.ShapeProto) -> int:
    return math.prod(shape.dimensions)


def operands(kernel: Kernel) -> list[pb.ShapeProto]:
    [entry] = [c for c in kernel.module.computations if c.id == kernel.module.entry_computation_id]
    shapes = [pb.ShapeProto.FromString(i.shape) for i in entry.instructions[:-1]]
    return [leaf for shape in shapes for leaf in leaves(shape)]


def results(kernel: Kernel) -> list[pb.ShapeProto]:
    """Without the library's working memory, bytes that stand last."""
    found = leaves(pb.ShapeProto.FromString(kernel.instruction.shape))
    return found[:-1] if len(found) > 1 and found[-1].element_type == S8 else found


def moved(kernel: Kernel) -> int:
    """All operands and all results once."""
    return sum(BYTES[s.element_type] * elements(s) for s in operands(kernel) + results(kernel))


def exactly(flops: int, kernel: Kernel) -> Bounds:
    cost = Cost(flops, moved(kernel))
    return Bounds(cost, cost)


def of_custom_call(kernel: Kernel) -> Bounds:
    """What a library call costs.

    Matrix product: of M x K, K x N and M x N, 2 M N K is twice the root of the sizes' product;
    B of them: of that product over B.
    Cholesky of N x N: sums of squares up to N, N (N + 1) (2 N + 1) / 6.  Triangular solution of M
    right-hand sides: N^2 each.  Inverse of a triangle: a reciprocal per column, and of the N - i
    elements i below the diagonal each 2 i (i products, i - 1 sums, one by the reciprocal).
    Convolution: 2 x the outputs x the taps of each, without those that fall on padding, none of
    them for 1 x 1.  Top k of N: at least one comparison each, and at most what sorting takes.
    """
    target = kernel.instruction.custom_call_target
    taken, made = operands(kernel), results(kernel)
    if target in NOTHING:
        return Bounds(Cost(0, 0), Cost(0, 0))
    if target == INVERSE:
        n = taken[0].dimensions[-1]
        each = n + sum(2 * i * (n - i) for i in range(1, n))
        return exactly(elements(taken[0]) // n**2 * each, kernel)
    if target == "__cublas$lt$matmul":
        sizes = elements(taken[0]) * elements(taken[1]) * elements(made[0])
        batch = math.prod(taken[0].dimensions[:-2])
        return exactly(2 * math.isqrt(sizes // batch), kernel)
    if target in ("cusolver_potrf_ffi", "Cholesky"):
        n = taken[0].dimensions[0]
        return exactly(n * (n + 1) * (2 * n + 1) // 6, kernel)
    if target == "__cublas$triangularSolve":
        return exactly(taken[0].dimensions[0] * elements(made[0]), kernel)
    if target in ("TopK", "__gpu$TopK"):
        count = elements(taken[0])
        most = count * math.ceil(math.log2(count))
        return Bounds(Cost(count, moved(kernel)), Cost(most, moved(kernel)))
    return _convolution(kernel, target.removeprefix("__cudnn$conv"), taken, made)


def _convolution(kernel, direction, taken, made) -> Bounds:
    outputs, weights = {
        "Forward": lambda: (made[0], taken[1]),
        "BiasActivationForward": lambda: (made[0], taken[1]),
        "BackwardFilter": lambda: (taken[1], made[0]),
        "BackwardInput": lambda: (taken[0], taken[1]),
    }[direction]()
    numbers = pb.ConvolutionDimensionNumbers.FromString(
        kernel.instruction.convolution_dimension_numbers
    )
    features = weights.dimensions[numbers.kernel_output_feature_dimension]
    most = 2 * elements(outputs) * elements(weights) // features
    window = [weights.dimensions[place] for place in numbers.kernel_spatial_dimensions]
    if set(window) == {1}:
        return exactly(most, kernel)
    return Bounds(Cost(most // 2, moved(kernel)), Cost(most, moved(kernel)))


def of_custom_call_inside(kernel: Kernel) -> Bounds:
    """What a fusion with a compiler's own call inside costs: of FLOPs, the other instructions'."""
    inside = [i.custom_call_target for i in kernel.called if i.opcode == "custom-call"]
    if any(target in COLLECTIVES for target in inside):
        return Bounds(Cost(0, 0), Cost(0, 0))
    counted = [i for i in kernel.called if i.opcode in ("and", "shift-right-logical")]
    flops = sum(elements(pb.ShapeProto.FromString(i.shape)) for i in counted)
    return Bounds(Cost(flops, 1), Cost(flops, moved(kernel)))
