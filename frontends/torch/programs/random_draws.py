"""Random numbers of tensors that have no values: the host's generator goes on as in a run.

The idea: what a program draws on the host after it has made its model or a large tensor (masks,
lengths, orders) depends on how many numbers these took.  So they are drawn, into other memory, and
forgotten.

    draw(torch.ops.aten.uniform_.default, (weight, -1.0, 1.0), {})
"""

from __future__ import annotations

from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily

from flint.frontends.torch.context import capture
from flint.frontends.torch.patching import around

#: What draws one number after the other, whatever the parts that it is done in.
DRAWING = frozenset((torch.ops.aten.uniform_.default, torch.ops.aten.normal_.default))
#: What makes a tensor of random numbers -> what draws them into one.
_FILLING = {
    "rand": torch.ops.aten.uniform_.default, "randn": torch.ops.aten.normal_.default,
    "normal": torch.ops.aten.normal_.default, "randint": getattr(torch.ops.aten.random_, "from"),
}  # fmt: skip
#: Elements that are drawn at once: many times the 16 that ``normal_`` makes together.
_AT_ONCE = 1 << 20
#: A process draws no more numbers than this, which takes about two seconds.
MOST = 1 << 28


def apply() -> None:
    """See initialisations that draw until the numbers are right."""
    around(torch.nn.init, "trunc_normal_", _truncated)


def draw(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Draw what an op would write into a host tensor without values."""
    tensor = args[0]
    if not (_is_of_host(tensor) and _may_draw(tensor.numel())):
        return
    left = tensor.numel()
    with unset_fake_temporarily():
        while left:
            size = left if left < 2 * _AT_ONCE else _AT_ONCE
            op(torch.empty(size, dtype=tensor.dtype), *args[1:], **kwargs)
            left -= size


def draw_made(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any], made: Any) -> None:
    """The same of a new tensor of random numbers, which is one of the host without values."""
    fill = _FILLING.get(op._opname.removesuffix("_like"))
    if fill is None or not _is_of_host(made):
        return
    ends = [item for item in args if isinstance(item, int | float)]
    if op._opname.startswith("randint"):
        ends = [0, *ends][-2:]
    own = {"generator": kwargs["generator"]} if kwargs.get("generator") else {}
    draw(fill, (made, *ends), own)


def _truncated(make: Any, tensor: Any, *args: Any, **kwargs: Any) -> Any:
    if not (_is_of_host(tensor) and _may_draw(tensor.numel())):
        return make(tensor, *args, **kwargs)
    with unset_fake_temporarily():
        make(torch.empty(tensor.shape, dtype=tensor.dtype), *args, **kwargs)
    return tensor


def _is_of_host(tensor: Any) -> bool:
    return isinstance(tensor, FakeTensor) and tensor.device.type == "cpu"


def _may_draw(numbers: int) -> bool:
    """Whether so many more numbers are not too many."""
    known = capture()
    known.drawn += numbers
    if known.drawn > MOST:
        known.notice(
            f"random numbers of more than {MOST:,} weights, and elements of large tensors, are not "
            "drawn on the host: what it draws afterwards is not what a run with the same seed draws"
        )
    return known.drawn <= MOST
