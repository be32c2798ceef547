"""Facts about ops and the ranks of collectives, from the events of a Kineto trace.

The idea: ``torch_ops`` reads what PyTorch records; this module handles what only Kineto writes, or
leaves out: a functional collective's group among its inputs, sizes from which the number of ranks
follows, the type in gloo's annotation.

    facts_of("aten::mm", arguments, Groups({}, True)).gemms
"""

from __future__ import annotations

import ast
import math
import re
from dataclasses import replace
from typing import Any, NamedTuple

from flint.converters.profilers.kineto.events import GloosWork
from flint.converters.profilers.torch_collectives import (
    comms_facts,
    functional_reduction,
    old_record,
    peer_in_group,
    ranks_of,
    root_in_group,
)
from flint.converters.profilers.torch_ops import bytes_of, op_facts, tensors_of
from flint.cost.aten_work import needs_values
from flint.observed.classes import OpClass
from flint.observed.columns import OpFacts, Tensor

RECORD = "record_param_comms"
#: The most arguments of an op.
_MAX_VALUES = 64


class Groups(NamedTuple):
    """Process groups.

    Attributes:
        ranks: name -> ranks, for groups that include this rank.
        infer: whether the group of a collective may be inferred from its size alone, or because
            there is no other group.
    """

    ranks: dict[str, tuple[int, ...]]
    infer: bool

    def one_of(self, members: int) -> tuple[int, ...] | None:
        """The only group with that many ranks; with any number for -1."""
        found = {group for group in self.ranks.values() if members < 0 or len(group) == members}
        return found.pop() if self.infer and len(found) == 1 else None


def facts_of(name: str, args: dict[str, Any], groups: Groups) -> OpFacts:
    """Facts about an op from its name and its event's arguments."""
    if name == RECORD:
        return _record(args, groups)
    dims = args.get("Input Dims")
    if not isinstance(dims, list):
        return op_facts(name, None)
    types = args.get("Input type")
    arguments = tensors_of(dims, types if isinstance(types, list) else [])
    facts = op_facts(name, arguments, values=_values(name, args.get("Concrete Inputs")))
    if facts.kind.collective:
        members = _members(name, facts.kind, arguments, args)
        group = _functional_group(args, groups.ranks)
        if group is None and facts.kind not in (OpClass.SEND, OpClass.RECV):
            group = groups.one_of(members)
        reduction = functional_reduction(name, args.get("Concrete Inputs"))
        root = root_in_group(name, args.get("Concrete Inputs"))
        facts = replace(facts, group=group, members=members, reduction=reduction, root=root)
    if facts.kind in (OpClass.SEND, OpClass.RECV):
        peer = peer_in_group(name, args.get("Concrete Inputs"), groups.ranks)
        facts = replace(facts, group=None, peer=peer)
    return facts


#: Records of no communication.
_SILENT = frozenset({"", "init", "wait", "startcoalescing", "endcoalescing", "monitoredbarrier"})


def _values(name: str, concrete: object) -> list[Any]:
    """Numbers and lists that Kineto writes as Python text, if FLOPs depend on them."""
    if not isinstance(concrete, list) or not needs_values(name):
        return []
    found: list[Any] = []
    for text in concrete[:_MAX_VALUES]:
        try:
            found.append(ast.literal_eval(text) if text else None)
        except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            found.append(None)
    return found


def _record(args: dict[str, Any], groups: Groups) -> OpFacts:
    found = comms_facts(args, groups.ranks) or old_record(
        args.get("Concrete Inputs"), args.get("Input Dims"), args.get("Input type")
    )
    name = str(args.get("Collective name", ""))
    size = args.get("Group size")
    if found is None and name == "barrier" and groups.infer:
        group = ranks_of(args.get("Process Group Ranks")) or None
        found = OpFacts(OpClass.ALL_REDUCE, name, (((1,), "f32"),), (4,), "f32", group)
    if found is not None:
        if type(size) is int and size > 0 and found.group is None:
            return replace(found, members=size)
        return found
    if name.replace("_", "").lower() in _SILENT or name == "barrier":
        # With a name, nothing else is inferred from its kernel's.
        return OpFacts(OpClass.FREE, name or RECORD)
    return OpFacts(OpClass.OTHER_COLLECTIVE, name)


def with_type(facts: OpFacts, work: GloosWork) -> OpFacts:
    """A collective on lists of tensors, for which Kineto records no type, with that of gloo's
    work.
    """
    if facts.parts is not None or not facts.operands or not work.dtype:
        return facts
    if work.elements != sum(math.prod(shape) for shape, _ in facts.operands):
        return facts
    operands = tuple((shape, kind or work.dtype) for shape, kind in facts.operands)
    return replace(facts, operands=operands, parts=bytes_of(operands), dtype=work.dtype)


def _functional_group(args: dict[str, Any], groups: dict[str, tuple[int, ...]]) -> Any:
    """A functional collective's group: its last text argument is the process group's name.

    Its number of ranks is written as a text as well, and groups' names are numbers.
    """
    concrete, types = args.get("Concrete Inputs"), args.get("Input type")
    if not isinstance(concrete, list) or not isinstance(types, list):
        concrete, types = [], []
    for item, kind in reversed(list(zip(concrete, types, strict=False))):
        if kind != "Scalar" and isinstance(item, str) and item in groups:
            return groups[item]
    return ranks_of(args.get("Process Group Ranks")) or None


def _members(name: str, kind: OpClass, arguments: list[list[Tensor]], args: dict[str, Any]) -> int:
    """How many ranks take part: from a functional op's argument, or from its input and output
    sizes.
    """
    concrete, types = args.get("Concrete Inputs"), args.get("Input type")
    if name.startswith("_c10d_functional::") and isinstance(concrete, list):
        for item, type_ in zip(concrete, types if isinstance(types, list) else [], strict=False):
            if type_ == "Scalar" and re.fullmatch(r"\d{1,9}", str(item)):
                return int(item)
        return -1
    if len(arguments) < 2 or kind not in (OpClass.ALL_GATHER, OpClass.REDUCE_SCATTER):
        return -1
    result, sent = (sum(math.prod(shape) for shape, _ in argument) for argument in arguments[:2])
    few, many = sorted((result, sent))
    return many // few if few and many % few == 0 else -1
