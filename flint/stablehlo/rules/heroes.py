"""Heroes: what a compiled fusion does, found from its content like the choice of XLA's emitters.

The idea: a backend's names for fusions are arbitrary (a TPU's are all called "fusion"), and most of
their ops are almost free: one op, the hero, decides which loop a kernel runs.  XLA's GPU backend
looks for it from each root backwards through ops that keep the elements as they are; a reduction or
a transpose found there has its own emitter, as do scatters, concatenations and in-place updates,
and everything else is a loop over the elements of the result (``FindHero`` and the choice of the
emitter in XLA's ``hlo_fusion_analysis``).  Products come first: ops fused with one are its prologue
and epilogue.

    fusion(x) { ROOT convert(reduce(multiply(p0, p0))) }                  reduction
    fusion(a, b, c) { ROOT add(dot(p0, p1), p2) }                         gemm epilogue
    fusion(x) { m = reduce(exp(p0))  ROOT divide(exp(p0), broadcast(m)) } softmax
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from flint.graph.work import Role
from flint.stablehlo.read.records import Block, Module, Op
from flint.stablehlo.rules import RULES
from flint.stablehlo.rules.names import names

#: Loops over elements: with arithmetic, and without.
_LOOP, _MOVES = "elementwise", "movement"
_REDUCTIONS: Final = frozenset(names("reduce reduce_window select_and_scatter"))
#: The kind of a kernel with such an op before one of its roots.
_FOUND: Final = {
    "sort": "sort",
    **dict.fromkeys(_REDUCTIONS, "reduction"),
    "transpose": "transpose",
    "scatter": "scatter",
    "concatenate": "concatenate",
    "dynamic_update_slice": "update",
    "gather": "gather",
}
#: With several roots of different heroes, the first of these counts.
_FIRST: Final = tuple(dict.fromkeys(_FOUND.values()))
#: Heroes that a kernel keeps if its root also reads other tensors.
_JOIN: Final = {"reduction", "transpose", "concatenate"}
#: Ops that keep elements unchanged.
_SAME: Final = frozenset(names("reshape mhlo.copy bitcast_convert"))
_EXPONENTIALS: Final = frozenset(names("exponential exponential_minus_one"))


def hero_of(module: Module, body: Block) -> str:
    """What a fused computation does, in one word.

    Args:
        module: the module with its values.
        body: body of the fusion.
    """
    ops = list(_inside(body))
    inside = {op.name for op in ops}
    if "convolution" in inside:
        return "convolution"
    if any(RULES[name].role == Role.CONTRACTION for name in inside & RULES.keys()):
        return "gemm epilogue" if _is_calculated(body) else "gemm"
    makers = _makers(body)
    known: dict[int, set[str]] = {}
    found = {hero for value in body.yields for hero in _heroes(module, value, makers, known)}
    if inside & _REDUCTIONS and "reduction" not in found:
        found.discard("transpose")  # the kernel runs along the rows that are reduced inside
    for hero in _FIRST:
        if hero in found:
            return hero
    if inside & _REDUCTIONS:
        return "softmax" if inside & _EXPONENTIALS else "normalization"
    # Arithmetic on one number computes a slice's offset, unless it is the kernel's result.
    largest = max((module.type_of(value).elements for value in body.yields), default=0)
    calculated = [module.type_of(op.results[0]).elements for op in ops if _calculates(op)]
    return _LOOP if any(size > 1 or largest <= 1 for size in calculated) else _MOVES


def _inside(body: Block) -> Iterator[Op]:
    """The ops of a fused computation and of fusions inside it, without reducers.

    Fusions that share a computation share its ops, which are listed once: a few levels of fusions
    that call the next one twice would have too many ops to examine.
    """
    pending, seen = [body], {id(body)}
    while pending:
        for op in pending.pop().ops:
            yield op
            regions = op.regions if op.name == "fusion" else ()
            pending += (region for region in regions if id(region) not in seen)
            seen.update(map(id, regions))


def _makers(body: Block) -> dict[int, Op]:
    return {value: op for op in body.ops for value in op.results}


def _calculates(op: Op) -> bool:
    """Whether it is arithmetic, element by element."""
    return op.name in RULES and RULES[op.name].role == Role.ELEMENTWISE


def _is_calculated(body: Block) -> bool:
    """Whether a root of a product's fusion results from arithmetic, not only from a conversion."""
    makers = _makers(body)
    roots = [makers[value] for value in body.yields if value in makers]
    return any(_calculates(op) and op.name != "convert" for op in roots)


def _heroes(
    module: Module, root: int, makers: dict[int, Op], known: dict[int, set[str]]
) -> set[str]:
    """The hero before a root, through ops that keep its elements one by one; empty for a loop.

    ``known`` caches the roots of fused computations, which many fusions may share.
    """
    if root in known:
        return known[root]
    elements = module.type_of(root).elements
    found: set[str] = set()
    pending, seen, joined = [root], {root}, False
    while pending:
        value = pending.pop()
        op = makers.get(value)
        if op is None:
            continue
        if op.name in _FOUND:
            behind = makers.get(op.operands[0]) if op.name == "transpose" else None
            found.add(_FOUND[op.name if behind is None or behind.name != "gather" else "gather"])
        elif op.name == "fusion" and op.regions:
            inner = op.regions[0]
            behind_it = inner.yields[op.results.index(value)]
            found |= _heroes(module, behind_it, _makers(inner), known)
        elif _calculates(op) or op.name in _SAME:
            made = [item for item in op.operands if item in makers]
            before = {item for item in made if module.type_of(item).elements == elements} - seen
            joined |= len(before) > 1
            pending += before
            seen |= before
    # Only these have loops that other tensors may be read in.
    known[root] = found & _JOIN if joined else found
    return known[root]
