"""Where packed sequences begin, of attention over several sequences in one tensor.

The idea: the work of such an op depends on the values of a small tensor (``cu_seqlens``).  A batch
of a data loader is packed on the host, so that they are often known when the op is recorded.

    with_lengths("_varlen_attn", args, views)     # views with their numbers
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily

from flint.cost.attention_work import offsets_of
from flint.frontends.torch.context import capture
from flint.frontends.torch.recording.known_values import known_of
from flint.frontends.torch.recording.recording import View


def with_lengths(name: str, args: Sequence[Any], recorded: tuple[Any, ...]) -> tuple[Any, ...]:
    """The recorded arguments of an op, with the values on which its work depends.

    Args:
        name: of the op, without its namespace and overload.
        args: its positional arguments.
        recorded: the same, as recorded.
    """
    found = list(recorded)
    for place in offsets_of(name):
        if place < len(args) and isinstance(args[place], torch.Tensor):
            known = known_of(capture().known_values, args[place])
            # Numbers that follow from another rank's or from an assumed count are not its own.
            if known is not None and not known.origin and isinstance(found[place], View):
                with unset_fake_temporarily():
                    numbers = tuple(map(int, known.value.tolist()))
                found[place] = replace(found[place], numbers=numbers)
    return tuple(found)
