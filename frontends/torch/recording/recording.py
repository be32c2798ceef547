"""A recording of one step of one rank: ops on views of storages, streams, groups.

The idea: a tensor is a strided view of a storage, an op reads views and writes views, and nothing
here needs torch, so that recordings can be compared, emitted and tested without it.  Order is issue
order; dependencies beyond an op's own stream are attributes of it.

    Op("aten.mm.default", args=(View(3, 0, (8, 16), (16, 1), "bfloat16"), View(4, ...)),
       results=(View(9, ...),), stream=0, ...)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from flint.frontends.torch.evidence import Evidence
from flint.graph.allocations import NEVER


@dataclass(frozen=True, slots=True)
class View:
    """A tensor.

    Attributes:
        storage: number of its storage in the recording.
        offset: of the first element, in elements of ``dtype``.
        shape, stride: in elements; a stride of 0 repeats.
        dtype: torch's name without its prefix: "bfloat16", "int64", "bool".
        conjugate: its values are the conjugates of those in memory (torch's conjugate views).
        numbers: its values, of an argument on whose values an op's work depends, if they are known.
    """

    storage: int
    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: str
    conjugate: bool = False
    numbers: tuple[int, ...] | None = None


#: An op's argument: a view, a plain value, or a tuple of arguments.  Dtypes, devices, layouts and
#: memory formats are their names as text ("torch.bfloat16", "flint:0").
Argument = Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Op:
    """A dispatched op (after DTensor, autograd and composite ops have been resolved).

    Attributes:
        name: "namespace.op.overload": "aten.mm.default", "c10d.allreduce_.default",
            "_c10d_functional.all_gather_into_tensor.default", "fsdp.all_gather_copy_in.default".
        args: positional arguments, in the schema's order.
        kwargs: keyword arguments.
        results: its results: views, None or plain values, flat; an in-place op returns the views
            that it wrote.
        writes: views of existing storages that it writes (in-place, out=, c10d's outputs).
        group: number of the process group in ``Recording.groups``; -1: not a communication.
        peer: global rank at the other end of a send or receive; -1 otherwise.
        reduction: "sum", "avg", "max", "min", "product" of a reducing collective, else "".
        tag: of a send or receive.
        stream: 0 is the device's default stream; a collective of a process group with its own
            stream has that stream.
        after: earlier ops, by number, that it waits for beyond those before it on its stream: event
            waits, stream waits, waited-for works, and every earlier reader or writer of bytes that
            it writes (write after read, write after write).
        phase: "forward", "backward", "recompute", "optimizer" or "".
        module: path of the module whose code ran ("layers.3.attention.wq"); in the backward pass,
            of the module whose forward pass it differentiates; "" unknown.
        file, line: the user's line that caused it; of the forward op in the backward pass.
        exact: whether products of f32 are not computed in TF32 (see ``precision``).
        recurrent: whether it is a step of a recurrent layer, for which cuDNN has one kernel.
        graphed: whether a CUDA graph launches it.
    """

    name: str
    args: tuple[Argument, ...]
    kwargs: Mapping[str, Argument]
    results: tuple[Argument, ...]
    writes: tuple[View, ...] = ()
    group: int = -1
    peer: int = -1
    reduction: str = ""
    tag: int = 0
    stream: int = 0
    after: tuple[int, ...] = ()
    phase: str = ""
    module: str = ""
    file: str = ""
    line: int = 0
    exact: bool = False
    recurrent: bool = False
    graphed: bool = False


@dataclass(frozen=True, slots=True)
class Group:
    """A process group: name, name in the program (a mesh dim), its global ranks in order."""

    name: str
    description: str
    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Input:
    """A storage that exists before the step.

    Attributes:
        view: the whole tensor by which the program refers to it.
        role: "parameter", "optimizer state", "batch", "constant" or "unknown".
        name: "model.layers.0.wq.weight", "optimizer.layers.0.wq.weight.exp_avg", "batch[0]".
    """

    view: View
    role: str
    name: str


@dataclass(frozen=True, slots=True)
class Life:
    """Memory that a storage had for some time.

    Attributes:
        bytes: its size.
        pool: the stream that was current at its allocation, in whose pool PyTorch's caching
            allocator keeps it; ``HOST`` of ``flint.graph.allocations``: in the host's memory.
        born: number of ops issued before its allocation; ``BEFORE`` or ``FIRST_STEP`` of the same
            module.
        freed: number of ops issued before it was released; ``NEVER`` if it outlives the step.
        used: number of the last op that read or wrote a value in it.
    """

    bytes: int
    pool: int
    born: int
    freed: int = NEVER
    used: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """One rank's step.

    Attributes:
        rank, world_size: the recorded rank, and the number of ranks.
        ops: in issue order.
        storage_bytes: size of every storage, bytes, the largest that it ever had.
        inputs: storages that exist before the step, those that are read or written.
        results: views that the step returned.
        groups: process groups, those that are used.
        mesh: ((axis, size), ...) of the device mesh.
        constants: storage -> bytes of small CPU tensors whose values the step created (such as
            indices).
        host: storages in the host's memory.
        lives: lives of its storages' memory, in the order in which they began.
        expandable: the allocator has segments that grow (``expandable_segments:True``).
        warnings: assumptions and unknowns, text -> count.
        evidence: evidence of differences among ranks, as seen by this rank.
        unseen: places of possible questions that are not in the evidence.
    """

    rank: int
    world_size: int
    ops: tuple[Op, ...]
    storage_bytes: tuple[int, ...]
    inputs: tuple[Input, ...] = ()
    results: tuple[View, ...] = ()
    groups: tuple[Group, ...] = ()
    mesh: tuple[tuple[str, int], ...] = ()
    constants: Mapping[int, bytes] = field(default_factory=dict)
    host: tuple[int, ...] = ()
    lives: tuple[Life, ...] = ()
    expandable: bool = False
    warnings: Mapping[str, int] = field(default_factory=dict)
    evidence: tuple[Evidence, ...] = ()
    unseen: tuple[str, ...] = ()


def views_in(argument: Argument) -> Iterator[View]:
    """Every view in an argument, tuples opened."""
    if isinstance(argument, View):
        yield argument
    elif isinstance(argument, tuple | list):
        for item in argument:
            yield from views_in(item)


def reads(op: Op) -> Iterator[View]:
    """Views that an op takes, those that it writes included."""
    yield from views_in(op.args)
    yield from views_in(tuple(op.kwargs.values()))
