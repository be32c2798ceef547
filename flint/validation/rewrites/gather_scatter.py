"""Gathers to a rank and scatters from one, which captures of PyTorch write as messages.

The idea: StableHLO has neither; NCCL's process group implements them by sends and receives, and so
do captures.  A profiler names the call.  A gather is one send of a member, or one receive from
every other member at its root; a scatter is one receive, or one send to every other member at its
root.

    through_root(matching)

The gradient of ``torch.distributed.nn.functional.all_gather`` is a reduce-scatter under NCCL; under
other backends its parts are exchanged, which gloo does by a scatter from every rank, and summed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from flint.observed.classes import OpClass
from flint.observed.columns import OpFacts
from flint.validation.matching.pairing import Evidence, Matching
from flint.validation.rewrites.cpu_substitutes import Free, key_of

THROUGH_ROOT = "a gather to one rank or a scatter from one, captured as its messages"

SUMMED = "the gradient of a gather: a reduce-scatter under NCCL, scatters and a sum under gloo"

#: What a member and what the root does in each of them.
_MESSAGES = {
    "gather": (OpClass.SEND, OpClass.RECV),
    "scatter": (OpClass.RECV, OpClass.SEND),
}


def through_root(matching: Matching) -> None:
    """Pair gathers and scatters, in order, with the messages that they are made of."""
    captured, executed = matching.captured, matching.executed
    messages = [
        i for i in matching.unmatched_captured if captured[i].kind in (OpClass.SEND, OpClass.RECV)
    ]
    calls = []
    at = 0
    for j in list(matching.unmatched_executed):
        roles = _MESSAGES.get(call_of(executed[j]))
        if roles is None:
            continue
        for start in range(at, len(messages)):
            run = _run([captured[i] for i in messages[start:]], *roles)
            if run and _fits([captured[i] for i in messages[start : start + run]], executed[j]):
                evidence = Evidence.NAME if executed[j].parts is None else Evidence.SIZES
                for i in messages[start : start + run]:
                    matching.pair(i, j, evidence)
                    matching.certain.add(i)
                    kind = captured[i].kind
                    matching.in_order[kind] = matching.in_order.get(kind, 0) + 1
                calls.append(j)
                at = start + run
                break
    matching.explain(THROUGH_ROOT, [], calls)


def gradients_of_gathers(matching: Matching) -> None:
    """Pair a reduce-scatter with a scatter from each member, and explain the sum of the parts."""
    executed = matching.executed
    calls = [
        j
        for j in matching.unmatched_executed
        if executed[j].operands and call_of(executed[j]) == "scatter"
    ]
    for i in matching.unmatched(OpClass.REDUCE_SCATTER)[0]:
        facts = matching.captured[i]
        members = len(facts.group or ())
        parts = calls[:members]
        whole = {executed[j].elements * members for j in parts} == {facts.elements}
        if len(parts) < members or not whole:
            continue
        del calls[:members]
        for j in parts:
            matching.pair(i, j, Evidence.SIZES)
        # Gloo's own event of a call follows it.
        events = [
            j + 1 for j in parts if j + 1 < len(executed) and executed[j + 1].name == "scatter"
        ]
        ((shape, _),) = executed[parts[0]].operands or (((), ""),)
        free = Free(executed, matching.unmatched(OpClass.REDUCTION)[1])
        total = free.take(Counter([key_of("sum", (members, *shape))]))
        matching.explain(SUMMED, [], [*events, *total])


def call_of(facts: OpFacts) -> str:
    """ "gather" or "scatter" of c10d or NCCL; "" or another name of anything else."""
    if facts.kind != OpClass.OTHER_COLLECTIVE:
        return ""
    return facts.name.removeprefix("c10d::").rstrip("_")


def _run(messages: Sequence[OpFacts], member: OpClass, root: OpClass) -> int:
    """How many of the first messages belong to one call: those of one line, to ranks not seen
    yet.
    """
    first = messages[0]
    if first.kind == member:
        return 1
    met: set[int] = set()
    for facts in messages:
        same = (facts.kind, facts.source, facts.parts) == (root, first.source, first.parts)
        if not same or facts.peer in met:
            break
        met.add(facts.peer)
    return len(met)


def _fits(messages: Sequence[OpFacts], call: OpFacts) -> bool:
    """Whether nothing in the trace of a call contradicts its messages."""
    first = messages[0]
    if call.dtype and first.dtype and call.dtype != first.dtype:
        return False
    if call.parts is not None and call.bytes != first.bytes:
        return False
    if call.parts is None and call.operands and call.elements != first.elements:
        return False
    at_root = first.kind == _MESSAGES[call_of(call)][1]
    if call.group is not None:
        others = {facts.peer for facts in messages} <= set(call.group)
        return others and (not at_root or len(messages) == len(call.group) - 1)
    return call.members < 0 or (at_root and len(messages) == call.members - 1)
