"""Gather to a root, scatter from one, barriers: made of others, as NCCL's process group does.

``emitter`` is a communication on its way into the module, as ``collectives.py`` makes it.
"""

from __future__ import annotations

import functools

from flint.frontends.torch.emission.emitter import Emitter
from flint.frontends.torch.lowerings import operations as build
from flint.frontends.torch.recording.recording import View


def gather(emitter: Emitter, inputs: list[View], outputs: list[View]) -> None:
    """A message from every other member to the root, as NCCL's process group does it.

    Every member's program has all of them, so that members that do the same run one program.
    """
    (source,) = inputs
    ranks, root = emitter.ranks(), emitter.root()
    value = emitter.read(source)
    for at, rank in enumerate(ranks):
        part = value if at == root else emitter.permute(value, rank, ranks[root])
        if outputs:
            emitter.write(outputs[at], build.reshape(part, outputs[at].shape))


def scatter(emitter: Emitter, inputs: list[View], outputs: list[View]) -> None:
    """A message from the root to every other member; all of them in every member's program.

    A permute gives zeros to who receives nothing, so that their sum is what a member received.
    """
    (out,) = outputs
    ranks, root = emitter.ranks(), emitter.root()
    nothing = build.constant(0, out.shape, out.dtype)
    values = [emitter.read(part) for part in inputs] or [nothing] * len(ranks)
    combine = build.or_ if out.dtype == "bool" else build.add
    received = [
        emitter.permute(value, ranks[root], rank)
        for rank, value in zip(ranks, values, strict=True)
        if rank != ranks[root]
    ]
    if emitter.among.recording.rank == ranks[root]:
        received = [values[root]]
    emitter.write(out, build.reshape(functools.reduce(combine, received), out.shape))


def barrier(emitter: Emitter, *_: list[View]) -> None:
    """NCCL's process group does a barrier as an all-reduce of one element."""
    emitter.all_reduce([build.constant(0, (1,), "float32")], "add")
