"""Collectives that a TPU backend has fused: each is one collective, even if spread over several
fusions.

The idea: XLA's TPU backend writes an asynchronous collective as fusions.  The first contains the
collective and ``AsyncCollectiveStart``; kernels that run in the meantime pass it along and repeat
it inside ("async collective fusions"); the last one ends in ``AsyncCollectiveDone``.  The data is
sent only once: the first fusion becomes the collective, the kernels become what they compute, the
last one the end.  An all-reduce fused with the slices of its results is a reduce-scatter.

    start  = fusion(x) { ROOT AsyncCollectiveStart(all-gather(p0)) }   -> all_gather x
    kernel = fusion(start..., a, b) { (dot(p2, p3), p0, all-gather(p0)) }  -> fusion a, b
    done   = fusion(kernel...) { ROOT AsyncCollectiveDone(p0, p1, all-gather(p0)) } -> async_done

Each function gives the records and the fusion's results, or None for any other fusion;
a fusion that contains a collective in another form is opened by the walker.
"""

from __future__ import annotations

from flint.stablehlo.read.records import Block, Op

START, DONE = "AsyncCollectiveStart", "AsyncCollectiveDone"

#: The record for the context that an asynchronous pair passes on besides data; it has no operands.
CONTEXT = "create_token"

_COLLECTIVES = frozenset(
    ("all_gather", "all_reduce", "all_to_all", "collective_permute", "reduce_scatter")
)

#: Records, and the value of each of the fusion's results (None: the fusion's own result).
Found = tuple[list[Op], dict[int, int]]


def fused_collective(op: Op) -> Found | None:
    """The records that replace a fusion with one collective.

    Args:
        op: the fusion's record, with its one region and ``aliases``.

    Returns:
        The records, and result number -> value that replaces this result.
    """
    [body] = op.regions
    held = [inner for inner in body.ops if inner.name in _COLLECTIVES]
    if len(held) != 1:
        return None
    [collective] = held
    last = body.ops[-1]
    target = last.attr("target") if last.name == "custom_call" else None
    if target == START:
        return _start(op, body, collective, last)
    if target == DONE:
        return _done(op)
    return _carried(op, body, collective) or _reduce_scatter(op, body, collective)


def _start(op: Op, body: Block, collective: Op, last: Op) -> Found | None:
    outside = dict(zip(body.args, op.operands, strict=True))
    sources, made = len(collective.operands), len(collective.results)
    whole = {id(collective), id(last)} == {id(inner) for inner in body.ops}
    known = all(value in outside for value in collective.operands)
    if not whole or not known or len(op.results) < sources + made:
        return None
    operands = tuple([outside[value] for value in collective.operands])
    results = op.results[sources : sources + made]
    attrs, regions, loc = collective.attrs, collective.regions, collective.loc
    records = [Op(collective.name, operands, results, attrs, regions, loc)]
    if len(op.results) > sources + made:
        records.append(Op(CONTEXT, (), op.results[sources + made :]))
    return records, dict(enumerate(operands))


def _done(op: Op) -> Found | None:
    aliases = dict(op.attr("aliases", ()))
    if set(aliases) != set(range(len(op.results))):
        return None
    if max(aliases.values()) >= len(op.operands):
        return None
    operands = tuple([op.operands[aliases[number]] for number in range(len(op.results))])
    return [Op("async_done", operands, op.results, None, (), op.loc)], {}


def _carried(op: Op, body: Block, collective: Op) -> Found | None:
    """A kernel concurrent with a collective, whose values only pass through it."""
    aliases = dict(op.attr("aliases", ()))
    passed: dict[int, int] = {}
    for number, value in enumerate(body.yields):
        if value in collective.results or value in body.args:
            source = aliases.get(number)
            if source is None or source >= len(op.operands):
                return None
            passed[number] = op.operands[source]
    used = {value for inner in body.ops if inner is not collective for value in inner.operands}
    if used.intersection(collective.results) or not passed:
        return None
    if not set(collective.results) <= {body.yields[number] for number in passed}:
        return None
    own = [number for number in range(len(op.results)) if number not in passed]
    computed = {body.yields[number] for number in own}
    kept = [place for place, value in enumerate(body.args) if value in used or value in computed]
    ops = [inner for inner in body.ops if inner is not collective]
    if not own:
        return [], passed
    rest = Block(
        tuple([body.args[place] for place in kept]),
        ops,
        tuple([body.yields[number] for number in own]),
    )
    return [
        Op(
            "fusion",
            tuple([op.operands[place] for place in kept]),
            tuple([op.results[number] for number in own]),
            {"kind": op.attr("kind", ""), "name": op.attr("name", "fusion")},
            (rest,),
            op.loc,
        )
    ], passed


def _reduce_scatter(op: Op, body: Block, collective: Op) -> Found | None:
    """An all-reduce each of whose results is only used by the slice that the fusion returns."""
    outside = dict(zip(body.args, op.operands, strict=True))
    if collective.name != "all_reduce" or not all(v in outside for v in collective.operands):
        return None
    slices = {inner.results[0]: inner for inner in body.ops if inner.name == "dynamic_slice"}
    users = [inner for inner in body.ops if set(inner.operands) & set(collective.results)]
    taken = [slices.get(value) for value in body.yields]
    sources = [inner.operands[0] for inner in taken if inner is not None]
    if len(users) != len(sources) or sorted(sources) != sorted(collective.results):
        return None
    if len(sources) != len(body.yields) or len(set(sources)) != len(sources):
        return None
    place = {value: number for number, value in enumerate(collective.results)}
    operands = tuple([outside[collective.operands[place[value]]] for value in sources])
    return [
        Op(
            "reduce_scatter",
            operands,
            op.results,
            collective.attrs,
            collective.regions,
            op.loc,
        )
    ], {}
