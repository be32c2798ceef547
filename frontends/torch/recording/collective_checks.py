"""Tensors of collectives that no group of ranks could exchange, by size or by layout.

The idea: a fake process group accepts everything; a real one refuses lists that are not as long as
the group, tensors that do not divide among its members and, if it needs one block of memory,
tensors that are not contiguous.  The rules are those of ProcessGroupNCCL.

    check_sizes("c10d.allgather_.default", ([[three tensors]], [tensor], group), 4, place)
    # FlintError: c10d.allgather_.default at train.py:7: 3 output tensors for 4 ranks
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from flint.errors import FlintError
from flint.frontends.torch.recording.collectives import collective_of
from flint.frontends.torch.recording.tracking import Place
from flint.frontends.torch.user_lines import at_line


def check_sizes(name: str, args: tuple[Any, ...], members: int, place: Place) -> None:
    """Accept a collective among ``members`` ranks that can run or that no rule is known for.

    Raises:
        FlintError: it cannot run; the text names its line and the reason.
    """
    collective = collective_of(name)
    if collective is None:
        return
    rule = _RULES.get((name.partition(".")[0], collective.kind, collective.layout))
    wrong = "" if rule is None else rule(args, members)
    wrong = wrong or _scattered(args, collective.one_block)
    if wrong:
        raise FlintError(f"{name}{at_line(place.file, place.line)}: {wrong}")


def _listed(what: str, position: int) -> Callable[[tuple[Any, ...], int], str]:
    def rule(args: tuple[Any, ...], members: int) -> str:
        for item in args[position]:
            if isinstance(item, Sequence) and len(item) != members:
                return f"{len(item)} {what} tensors for {members} ranks"
        return ""

    return rule


def _exchanged(args: tuple[Any, ...], members: int) -> str:
    for what, tensors in (("output", args[0]), ("input", args[1])):
        if len(tensors) != members:
            return f"{len(tensors)} {what} tensors for {members} ranks"
    return ""


def _times(whole: int, part: int) -> Callable[[tuple[Any, ...], int], str]:
    """The tensor at one position is that at another, once per rank."""

    def rule(args: tuple[Any, ...], members: int) -> str:
        large, small = args[whole].numel(), args[part].numel()
        if large == small * members:
            return ""
        names = ("an output", "an input") if whole == 0 else ("an input", "an output")
        return f"{names[0]} of {large:,} elements for {members} times {names[1]} of {small:,}"

    return rule


def _split(args: tuple[Any, ...], members: int) -> str:
    outputs, inputs, given = args[0], args[1], args[3:5]
    for what, tensor, sizes in zip(("output", "input"), (outputs, inputs), given, strict=True):
        wrong = _wrong_splits(what, tensor, sizes, members)
        if wrong:
            return wrong
    if not any(given) and outputs.numel() != inputs.numel():
        return f"an output of {outputs.numel():,} elements for an input of {inputs.numel():,}"
    return ""


def _split_functional(args: tuple[Any, ...], members: int) -> str:
    """The output is as large as its splits require."""
    source, received, sent = args[:3]
    if received and len(received) != members:
        return f"{len(received)} output splits for {members} ranks"
    return _wrong_splits("input", source, sent, members)


def _wrong_splits(what: str, tensor: Any, sizes: Sequence[int], members: int) -> str:
    rows = tensor.shape[0] if tensor.dim() else 1
    if sizes and len(sizes) != members:
        return f"{len(sizes)} {what} splits for {members} ranks"
    if sizes and sum(sizes) != rows:
        return f"{what} splits of {sum(sizes):,} rows for a tensor of {rows:,}"
    if not sizes and rows % members:
        return f"{what} of {rows:,} rows, which do not divide among {members} ranks"
    return ""


def _scattered(args: tuple[Any, ...], positions: Sequence[int]) -> str:
    for position in positions:
        given = args[position]
        for tensor in given if isinstance(given, Sequence) else (given,):
            if not _in_one_block(tensor):
                shape = ", ".join(map(str, tensor.shape))
                return f"a tensor ({shape}) that is not contiguous, as NCCL requires here"
    return ""


def _in_one_block(tensor: Any) -> bool:
    """Whether elements are contiguous: row-major, or with channels last."""
    formats = [torch.contiguous_format, *_CHANNELS_LAST.get(tensor.dim(), ())]
    if tensor.layout != torch.strided:
        return True  # sparse: outside this rule
    return any(tensor.is_contiguous(memory_format=item) for item in formats)


_CHANNELS_LAST = {4: (torch.channels_last,), 5: (torch.channels_last_3d,)}

#: Namespace, kind and layout -> the function that finds the error in a call's arguments ("": none).
_RULES: Mapping[tuple[str, str, str], Callable[[tuple[Any, ...], int], str]] = {
    ("c10d", "all_gather", "list"): _listed("output", 0),
    ("c10d", "gather", "list"): _listed("output", 0),
    ("c10d", "scatter", "list"): _listed("input", 1),
    ("c10d", "reduce_scatter", "list"): _listed("input", 1),
    ("c10d", "all_to_all", "list"): _exchanged,
    ("c10d", "all_gather", "tensor"): _times(0, 1),
    ("c10d", "reduce_scatter", "tensor"): _times(1, 0),
    ("c10d", "all_to_all", "rows"): _split,
    ("_c10d_functional", "all_to_all", "rows"): _split_functional,
}
