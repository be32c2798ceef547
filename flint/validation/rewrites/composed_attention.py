"""Attention that one side composes of single products, and the other has a kernel for.

The idea: where a device has no kernel for an attention, PyTorch composes it of products, a softmax
and a dropout (``_scaled_dot_product_attention_math`` in
aten/src/ATen/native/transformers/attention.cpp).  The CPU has none with a dropout of the weights;
forward, that is one op around the others, and the parts' gradients are computed one by one: of each
of the two products, for both of its operands.  Accelerators have none for heads of a size whose
rows are not aligned (``sdp_utils.cpp``), which the CPU's takes: then the capture has the parts.

    composed_attention(matching)
    kernel_on_the_cpu(matching)
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Sequence

from flint.observed.classes import OpClass, base_name
from flint.observed.columns import Gemm, OpFacts
from flint.validation.matching.equivalence import either_way
from flint.validation.matching.pairing import Evidence, Matching
from flint.validation.rewrites.cpu_substitutes import Free, Key, Shape, key_of, unmatched_light

COMPOSED = "gradients of attention, which the CPU computes as single products where it has dropout"
WRITTEN = "attention of a size without a kernel on accelerators: its parts; the CPU has a kernel"

#: What is around the products in PyTorch's composition, forward and in its gradient: on the scaled
#: queries and keys or the scores, on the scores, or on a mask of which queries see which keys.
_SCALED = frozenset({"mul"})
_OF_SCORES = frozenset(
    {"add", "where", "_softmax", "_safe_softmax", "_softmax_backward_data", "native_dropout"}
)
_OF_MASKS = frozenset({"where", "tril"})


def composed_attention(matching: Matching) -> None:
    """Pair the gradient of an attention with its four products, and explain the ops between."""
    products = _by_size(matching.executed, matching.unmatched(OpClass.GEMM)[1])
    for i in matching.unmatched(OpClass.ATTENTION)[0]:
        facts = matching.captured[i]
        if "backward" not in base_name(facts.name) or not facts.gemms:
            continue
        (batch, rows, keys, size), *others = facts.gemms
        width = next((w for w in (_other(one, rows, keys) for one in others) if w != size), size)
        gradients = _gradients(batch, rows, keys, size, width)
        if any(len(products[one]) < many for one, many in gradients.items()):
            continue
        for one, many in gradients.items():
            for _ in range(many):
                matching.pair(i, products[one].popleft(), Evidence.SIZES)
        matching.explained[COMPOSED] += 1
        _explain_between(matching, i, rows, keys, size)


def kernel_on_the_cpu(matching: Matching) -> None:
    """Pair the products of an attention with the CPU's kernel, and explain the ops between."""
    products = _by_size(matching.captured, matching.unmatched(OpClass.GEMM)[0])
    for j in matching.unmatched(OpClass.ATTENTION)[1]:
        facts = matching.executed[j]
        backward = "backward" in base_name(facts.name)
        tensors = [shape for shape, _ in facts.operands or () if len(shape) == 4]
        if len(tensors) < 3 + backward:
            continue
        # The gradient of the result comes first in the gradient's op.
        (outer, heads, rows, size), (_, _, keys, _), (*_, width) = tensors[backward : 3 + backward]
        batch = outer * heads
        parts = (
            _gradients(batch, rows, keys, size, width)
            if backward
            else Counter(map(either_way, ((batch, rows, keys, size), (batch, rows, width, keys))))
        )
        if any(len(products[one]) < many for one, many in parts.items()):
            continue
        for one, many in parts.items():
            for _ in range(many):
                matching.pair(products[one].popleft(), j, Evidence.SIZES)
        scores, mask = (outer, heads, rows, keys), (rows, keys)
        ends = (rows, size), (size, keys), (keys, size)
        scaled: set[Shape] = {scores, *((outer, heads, *end) for end in ends)}
        shapes: dict[str, set[Shape]] = defaultdict(set)
        for names, own in ((_SCALED, scaled), (_OF_SCORES, {scores}), (_OF_MASKS, {mask})):
            for name in names:
                shapes[name] |= own
        matching.explain(WRITTEN, _between(matching, shapes, backward), [])
        matching.explained[WRITTEN] += 1


def _between(matching: Matching, shapes: dict[str, set[Shape]], backward: bool) -> list[int]:
    """The first captured ops of these shapes that may be between the products, one of each kind,
    and a product for each of queries and keys.

    Args:
        matching: the ops.
        shapes: name -> shapes of which one of its operands must have one.
        backward: whether gradients are among them.
    """
    free = Free(matching.captured, unmatched_light(matching)[0])
    wanted: Counter[Key] = Counter()
    for name, operands in list(free.positions):
        if operands & shapes.get(name, set()) and ("backward" in name) <= backward:
            wanted[name, operands] = 2 if name == "mul" and len(operands) == 1 else 1
    return free.take(wanted)


def _by_size(ops: Sequence[OpFacts], positions: Iterable[int]) -> dict[Gemm, deque[int]]:
    """These ops, by the sizes of their products."""
    products: dict[Gemm, deque[int]] = defaultdict(deque)
    for number in positions:
        for product in ops[number].gemms or ():
            products[either_way(product)].append(number)
    return products


def _gradients(batch: int, rows: int, keys: int, size: int, width: int) -> Counter[Gemm]:
    """The four products of a gradient of attention, by size."""
    return Counter(
        either_way(one)
        for one in (
            (batch, rows, keys, width), (batch, keys, width, rows),  # weights, values
            (batch, rows, size, keys), (batch, keys, size, rows),  # queries, keys
        )
    )  # fmt: skip


def _other(product: Gemm, rows: int, keys: int) -> int:
    """The third size of a product of attention, after its rows and keys: the width of a head."""
    sizes = list(product[1:])
    for one in (rows, keys):
        if one in sizes:
            sizes.remove(one)
    return sizes[0]


def _explain_between(matching: Matching, captured: int, rows: int, keys: int, size: int) -> None:
    """Explain the gradients of softmax, dropout and the scaling of queries and keys."""
    shapes = [shape for shape, _ in matching.captured[captured].operands or () if len(shape) == 4]
    batch, heads = shapes[0][:2] if shapes else (0, 0)
    scores = batch, heads, rows, keys
    scaled = (batch, heads, rows, size), (batch, heads, size, keys)  # may look like the scores
    ran = Counter(key_of("mul", shape) for shape in (scores, *scaled))
    ran[key_of("_softmax_backward_data", scores)] = 1
    free = Free(matching.executed, unmatched_light(matching)[1])
    matching.explain(COMPOSED, [], free.take(ran))
