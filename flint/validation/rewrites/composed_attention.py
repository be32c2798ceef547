"""Gradients of attention that the CPU computes as single products.

The idea: with a dropout of attention's weights the CPU has no kernel for attention and composes it
of products, a softmax and a dropout (``_scaled_dot_product_attention_math`` in
aten/src/ATen/native/transformers/attention.cpp).  Forward, that is one op around the others; the
parts' gradients are computed one by one: of each of the two products, for both of its operands.

    composed_attention(matching)
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque

from flint.observed.classes import OpClass, base_name
from flint.observed.columns import Gemm
from flint.validation.matching.equivalence import either_way
from flint.validation.matching.pairing import Evidence, Matching
from flint.validation.rewrites.cpu_substitutes import Free, key_of, unmatched_light

COMPOSED = "gradients of attention, which the CPU computes as single products where it has dropout"


def composed_attention(matching: Matching) -> None:
    """Pair the gradient of an attention with its four products, and explain the ops between."""
    products: dict[Gemm, deque[int]] = defaultdict(deque)
    for j in matching.unmatched(OpClass.GEMM)[1]:
        for product in matching.executed[j].gemms or ():
            products[either_way(product)].append(j)
    for i in matching.unmatched(OpClass.ATTENTION)[0]:
        facts = matching.captured[i]
        if "backward" not in base_name(facts.name) or not facts.gemms:
            continue
        (batch, rows, keys, size), *others = facts.gemms
        width = next((w for w in (_other(one, rows, keys) for one in others) if w != size), size)
        gradients = Counter(
            either_way(one)
            for one in (
                (batch, rows, keys, width), (batch, keys, width, rows),  # weights, values
                (batch, rows, size, keys), (batch, keys, size, rows),  # queries, keys
            )
        )  # fmt: skip
        if any(len(products[one]) < many for one, many in gradients.items()):
            continue
        for one, many in gradients.items():
            for _ in range(many):
                matching.pair(i, products[one].popleft(), Evidence.SIZES)
        matching.explained[COMPOSED] += 1
        _explain_between(matching, i, rows, keys, size)


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
