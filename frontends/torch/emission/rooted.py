"""Gather to a root, scatter from one, barriers: made of others, as NCCL's process group does.

``emitter`` is a communication on its way into the module, as ``collectives.py`` makes it.
"""

from __future__ import annotations

import functools
from typing import Any

from flint.frontends.torch.lowerings import operations as build


def gather_to_root(emitter: Any) -> None:
    """A message from every other member to the root, as NCCL's process group does it.

    Every member's program has all of them, so that members that do the same run one program.
    """
    (source,) = emitter.views(1)
    ranks, root, outputs = emitter.ranks(), emitter.root(), emitter.views(0)
    value = emitter.read(source)
    for at, rank in enumerate(ranks):
        part = value if at == root else emitter.permute(value, rank, ranks[root])
        if outputs:
            emitter.write(outputs[at], build.reshape(part, outputs[at].shape))


def scatter_from_root(emitter: Any) -> None:
    """A message from the root to every other member; all of them in every member's program.

    A permute gives zeros to who receives nothing, so that their sum is what a member received.
    """
    (out,) = emitter.views(0)
    ranks, root, parts = emitter.ranks(), emitter.root(), emitter.views(1)
    nothing = build.constant(0, out.shape, out.dtype)
    values = [emitter.read(part) for part in parts] or [nothing] * len(ranks)
    combine = build.or_ if out.dtype == "bool" else build.add
    received = [
        emitter.permute(value, ranks[root], rank)
        for rank, value in zip(ranks, values, strict=True)
        if rank != ranks[root]
    ]
    if emitter.among.recording.rank == ranks[root]:
        received = [values[root]]
    emitter.write(out, build.reshape(functools.reduce(combine, received), out.shape))


def barrier(emitter: Any) -> None:
    """NCCL's process group does a barrier as an all-reduce of one element."""
    emitter.all_reduce([build.constant(0, (1,), "float32")], "add")
