"""The behaviour of a rank as one hash, equal for ranks that do the same relative to their place.

The idea: two ranks run one program when their ops, shapes, streams and waits are equal and their
groups have the same form around them.  Values that depend on the rank's number (offsets of shards,
masks of vocabularies) are not behaviour: sizes are compared, numbers are not.

    Signed(recording).whole == Signed(other).whole
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from flint.frontends.torch.ranks.replica_groups import full_groups
from flint.frontends.torch.recording.recording import Group, Recording, View


class Signed:
    """A recording and its hashes, independent of the rank's own place.

    Attributes:
        recording: what was recorded.
        ops: a hash of every op.
        whole: a hash of all of it.
        messages: a hash of what it communicates: with whom, in which order, how much.
        besides_updates: a hash of this and of what models do, forward and backward; not of what
            is done with their gradients and weights, whose pieces may differ.
    """

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.ops = tuple(op_signatures(recording))
        digest = hashlib.sha256("".join(self.ops).encode())
        digest.update(repr(recording.storage_bytes).encode())
        digest.update(repr([_form(item.view) for item in recording.inputs]).encode())
        self.whole = digest.hexdigest()
        self.messages = _messages(recording)
        self.besides_updates = _besides_updates(recording, self.messages)


def op_signatures(recording: Recording) -> Iterator[str]:
    """A hash of every op, independent of the rank's own place."""
    shape = tuple(size for _, size in recording.mesh) or (recording.world_size,)
    groups = [_place(group, recording.rank, shape) for group in recording.groups]
    for op in recording.ops:
        peer = _step(recording.rank, op.peer, shape) if op.peer >= 0 else None
        # The other groups of the same kind have other names.
        own = recording.groups[op.group].name if op.group >= 0 else None
        parts = (
            op.name,
            _form(op.args, own),
            _form(tuple(sorted(op.kwargs.items())), own),
            _form(op.results, own),
            groups[op.group] if op.group >= 0 else None,
            peer,
            op.reduction,
            op.stream,
            op.after,
            op.phase,
            op.module,
        )
        yield hashlib.blake2b(repr(parts).encode(), digest_size=8).hexdigest()


def _messages(recording: Recording) -> str:
    shape = tuple(size for _, size in recording.mesh) or (recording.world_size,)
    groups = [_place(group, recording.rank, shape) for group in recording.groups]
    digest, numbers = hashlib.sha256(), dict[int, int]()
    for op in recording.ops:
        if op.group >= 0:
            own = recording.groups[op.group].name
            peer = _step(recording.rank, op.peer, shape) if op.peer >= 0 else None
            sent = _form(_anew((op.args, tuple(sorted(op.kwargs.items()))), numbers), own)
            digest.update(repr((op.name, *sent, groups[op.group], peer, op.reduction)).encode())
    return digest.hexdigest()


def _besides_updates(recording: Recording, messages: str) -> str:
    digest, numbers = hashlib.sha256(messages.encode()), dict[int, int]()
    for op in recording.ops:
        if op.group < 0 and op.phase != "optimizer" and (op.module or op.phase != "forward"):
            given = op.args, tuple(sorted(op.kwargs.items())), op.results
            parts = (op.name, _form(_anew(given, numbers)), op.stream, op.phase, op.module)
            digest.update(repr(parts).encode())
    return digest.hexdigest()


def _anew(argument: Any, numbers: dict[int, int]) -> Any:
    """An argument whose storages are numbered as they appear among these ops."""
    if isinstance(argument, View):
        number = numbers.setdefault(argument.storage, len(numbers))
        return replace(argument, storage=number)
    if isinstance(argument, tuple | list):
        return tuple(_anew(item, numbers) for item in argument)
    return argument


def _step(rank: int, peer: int, shape: tuple[int, ...]) -> Any:
    """The source and target of a message, along the mesh axes that it crosses.

    They are absolute: a stage's peers are part of its behaviour, so that every stage is a program.
    """
    ends = np.stack(np.unravel_index(np.array([rank, peer]), shape))
    return [(axis, *ends[axis].tolist()) for axis in np.flatnonzero(ends[:, 0] != ends[:, 1])]


def _form(argument: Any, group: str | None = None) -> Any:
    """An argument without numbers that may name a rank, and without its group's name."""
    if isinstance(argument, View):
        return argument.storage, argument.shape, argument.stride, argument.dtype
    if isinstance(argument, tuple | list):
        return tuple(_form(item, group) for item in argument)
    if argument == group and group is not None:
        return "its group"
    if isinstance(argument, bool) or argument is None or isinstance(argument, str):
        return argument
    return "int" if isinstance(argument, int) else type(argument).__name__


def _place(group: Group, rank: int, shape: tuple[int, ...]) -> Any:
    """The form of a group around a rank: the steps between its members along each mesh axis."""
    places = np.stack(np.unravel_index(np.array(group.ranks), shape))
    own = np.array(np.unravel_index(rank, shape))
    if rank not in group.ranks:
        return (places - own[:, None]).tolist()
    # Members along whole axes look the same from each of them, and so do the equal parts that tile
    # an axis; anything else is kept unchanged.
    varying = tuple(np.flatnonzero((places != places[:, :1]).any(1)).tolist())
    if len(group.ranks) == int(np.prod([shape[axis] for axis in varying], initial=1)):
        return varying, "whole"
    return hashlib.sha256(full_groups(group.ranks, shape).tobytes()).hexdigest()
