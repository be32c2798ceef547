"""The properties of a dispatched op's calls, from its schema and from knowledge beyond it.

rule_of(torch.ops.aten.add_.Tensor).written      # (0,)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from flint.frontends.torch.recording.collectives import collective_of
from flint.frontends.torch.recording.effects import (
    IGNORED,
    ONLY_WRITING,
    OVERWRITING,
    hidden_writes,
)

#: Ops after which a copy from the device is complete on the host.
_COPIES = frozenset(("aten._to_copy.default", "aten.copy_.default"))

#: Tensor types that are not decomposed further.
_PLAIN = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)


def is_plain(kind: type) -> bool:
    """Whether tensors of a type are not made of others."""
    return kind in _PLAIN or issubclass(kind, FakeTensor)


@dataclass(frozen=True, slots=True)
class Rule:
    """The properties of an op.

    Attributes:
        name: "aten.mm.default".
        written: positions of positional arguments that it writes.
        written_kwargs: names of keyword arguments that it writes.
        overwrites: it does not read the tensors that it writes.
        ignored: it is not recorded.
    """

    name: str
    written: tuple[int, ...]
    written_kwargs: tuple[str, ...]
    overwrites: bool
    ignored: bool


@cache
def rule_of(op: Any) -> Rule:
    """The rule of an op of the dispatcher."""
    name = str(op)
    arguments = op._schema.arguments
    positional = [item for item in arguments if not item.kwarg_only]
    written = [at for at, item in enumerate(positional) if _is_written(item)]
    kwargs = tuple(item.name for item in arguments if item.kwarg_only and _is_written(item))
    overwrites = bool(kwargs) or op._schema.name.split("::")[1] in OVERWRITING
    overwrites |= op.namespace in ONLY_WRITING
    collective = collective_of(name) if op.namespace == "c10d" else None
    if collective is not None and collective.outputs is not None:
        written.append(collective.outputs)
        overwrites |= not collective.reads_outputs
    ignored = name in IGNORED or op.namespace == "profiler"
    return Rule(name, tuple(written), kwargs, overwrites, ignored)


#: Ops of a program's extensions -> the function whose ops are recorded in their place.
OWN_PARTS: dict[Any, Callable[..., Any]] = {}


@cache
def parts_of(op: Any, backend: str) -> Callable[..., Any] | None:
    """The decomposition of an op that only combines others; None for an op with a kernel.

    Such ops reach a mode only without autograd (in inference mode), which otherwise decomposes
    them.

    Args:
        op: of the dispatcher.
        backend: the dispatcher's key of the device that runs it.
    """
    if op in OWN_PARTS:
        return OWN_PARTS[op]
    has_kernel: Any = torch._C._dispatch_has_kernel_for_dispatch_key
    composite = op.namespace == "aten" and has_kernel(op.name(), "CompositeImplicitAutograd")
    return op.decompose if composite and not has_kernel(op.name(), backend) else None


def written_tensors(
    rule: Rule, args: tuple[Any, ...], kwargs: Any, results: list[torch.Tensor]
) -> list[torch.Tensor]:
    """The tensors that a call writes, in the order of its arguments."""
    if rule.name == "fsdp.all_gather_copy_in.default":
        return results[:1]  # this rank's part of the gathered buffer
    written: list[torch.Tensor] = []
    for position in (*rule.written, *hidden_writes(rule.name, args)):
        if position < len(args):
            written.extend(tensors_in(args[position]))
    for name in rule.written_kwargs:
        written.extend(tensors_in(kwargs.get(name)))
    return written


def returned(rule: Rule, args: tuple[Any, ...], result: Any) -> Any:
    """What a call returns: an op in place what it has written, of which fake tensors that are made
    of a real one of the host's are another object.
    """
    if len(rule.written) != 1 or not isinstance(result, torch.Tensor):
        return result
    own = args[rule.written[0]] if rule.written[0] < len(args) else None
    return own if type(own) is torch.Tensor else result


def waits_for_host(
    rule: Rule, args: tuple[Any, ...], kwargs: Any, results: list[torch.Tensor]
) -> bool:
    """Whether a call copies to the host, which waits for it (``.cpu()``, not ``non_blocking``)."""
    if rule.name not in _COPIES:
        return False
    later = kwargs.get("non_blocking", args[2] if len(args) > 2 else False)
    return not later and any(item.device.type == "cpu" for item in results)


def tensors_in(item: Any) -> Iterator[torch.Tensor]:
    """Every tensor in an argument, lists and tuples opened."""
    if isinstance(item, torch.Tensor):
        yield item
    elif isinstance(item, list | tuple):
        for part in item:
            yield from tensors_in(part)


def _is_written(argument: Any) -> bool:
    return argument.alias_info is not None and bool(argument.alias_info.is_write)


def flat(result: Any) -> list[Any]:
    """What an op returns, lists and tuples opened."""
    if isinstance(result, list | tuple):
        return [
            part
            for item in result
            for part in (flat(item) if isinstance(item, list | tuple) else (item,))
        ]
    return [] if result is None else [result]
