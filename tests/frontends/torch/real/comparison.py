"""What a rank really did against what was recorded of it on a fake cluster.

Both are walked side by side.  Every op must be the same one: name, arguments (views with shape,
stride, offset and dtype, numbers, flags), results, written views, group, peer, tag, reduction,
phase, module, line; and storages must correspond one to one throughout, so that the flow of data is
the same.  Waits for collectives and reads of values by the host stand in the sequences, too.  What
differs because a CPU with gloo is no GPU with NCCL stands in ``DIFFERENCES``, by name and with its
reason; nothing else may differ.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

_FIELDS = ("name", "group", "peer", "reduction", "tag", "phase", "module", "file", "line")
_DEVICES = {"flint", "flint:0", "cpu"}


@dataclass(frozen=True)
class Difference:
    """Something that a CPU does otherwise.

    Attributes:
        reason: why.
        real, fake: names of the ops that stand for each other, in order; either may be empty.
        holds: ``holds(walk, real ops, fake ops)``: whether these ones do.
    """

    reason: str
    real: tuple[str, ...]
    fake: tuple[str, ...]
    holds: Callable[[Walk, list[Any], list[Any]], bool]


@dataclass
class Walk:
    """Two sequences side by side.

    Attributes:
        real, fake: plain ops.
        at: how far each has been walked.
        equal: ops found equal.
        explained: reason -> how often it was needed.
    """

    real: list[Any]
    fake: list[Any]
    at: tuple[int, int] = (0, 0)
    equal: Counter[str] = field(default_factory=Counter)
    explained: Counter[str] = field(default_factory=Counter)
    _there: dict[int, int] = field(default_factory=dict)
    _back: dict[int, int] = field(default_factory=dict)

    def tie(self, one, two):
        """Two storages are the same; whether that can be."""
        return self._there.setdefault(one, two) == two and self._back.setdefault(two, one) == one

    def same(self, one, two):
        """Whether arguments are equal, storages being the same all along."""
        if isinstance(one, dict) and isinstance(two, dict) and "view" in one and "view" in two:
            (storage, *view), (other, *expected) = map(_canonical, (one["view"], two["view"]))
            return view == expected and self.tie(storage, other)
        if isinstance(one, list) and isinstance(two, list):
            return len(one) == len(two) and all(map(self.same, one, two))
        if isinstance(one, dict) and isinstance(two, dict):
            return one.keys() == two.keys() and all(self.same(one[k], two[k]) for k in one)
        if isinstance(one, str) and isinstance(two, str) and {one, two} <= _DEVICES:
            return True
        return one == two

    def differing(self, one, two):
        """The first field in which two ops differ, or None."""
        for name in _FIELDS:
            if name in one and name in two and one[name] != two[name]:
                return name
        for name in ("args", "kwargs", "results", "writes"):
            if not self.same(one[name], two[name]):
                return name
        return None


def _canonical(view):
    """A view without the strides of axes with one element, which lead nowhere."""
    storage, offset, shape, stride, dtype = view
    steps = [0 if size == 1 else step for size, step in zip(shape, stride, strict=True)]
    return storage, offset, shape, steps, dtype


def compared(real, fake):
    """Walk both to their ends.

    Raises:
        AssertionError: at the first op that differs without a reason; says which and how.
    """
    walk = Walk(real, fake)
    while walk.at != (len(real), len(fake)):
        here, there = walk.at
        if here < len(real) and there < len(fake) and real[here]["name"] == fake[there]["name"]:
            wrong = walk.differing(real[here], fake[there])
            if wrong is None:
                walk.equal[real[here]["name"]] += 1
                walk.at = here + 1, there + 1
                continue
        else:
            wrong = "name"
        for item in DIFFERENCES:
            ours, theirs = real[here : here + len(item.real)], fake[there : there + len(item.fake)]
            if (
                tuple(op["name"] for op in ours) == item.real
                and tuple(op["name"] for op in theirs) == item.fake
                and item.holds(walk, ours, theirs)
            ):
                walk.explained[item.reason] += 1
                walk.at = here + len(ours), there + len(theirs)
                break
        else:
            raise AssertionError(_told(walk, wrong))
    return walk


def _told(walk, wrong):
    here, there = walk.at
    lines = [f"after {walk.equal.total()} equal ops: {wrong} differs"]
    for what, ops, at in (("real", walk.real, here), ("fake", walk.fake, there)):
        for i in range(max(0, at - 1), min(len(ops), at + 2)):
            mark = ">" if i == at else " "
            lines.append(f"{mark} {what} {i}: {_brief(ops[i])}")
    return "\n".join(lines)


def _brief(op):
    known = {key: value for key, value in op.items() if value not in ([], {}, None, "", 0, -1)}
    return str(known).replace("{'view': ", "").replace("]}", "]")[:330]


# The table of differences, and what must hold for each.


def _attention(walk, real, fake):
    """Query, key and value are the same; the copied result lies in memory as the other kernel's."""
    attention, copy = real
    out = attention["results"][0]
    _, _, shape, stride, dtype = copy["results"][0]["view"]
    expected = fake[0]["results"][0]["view"]
    # [batch, positions, heads, size] in the copy, [batch, heads, positions, size] in the result
    heads = (0, 2, 1, 3)
    swapped = [[items[i] for i in heads] for items in (shape, stride)]
    return (
        walk.same(attention["args"][:3], fake[0]["args"][:3])
        and copy["args"][0]["view"][0] == out["view"][0]
        and [swapped[0], dtype] == [expected[2], expected[4]]
        and walk.same(
            {"view": [copy["results"][0]["view"][0], 0, *swapped, dtype]}, {"view": expected}
        )
    )


def _attention_backward(walk, real, fake):
    """The result's gradient, query, key, value and their gradients are the same."""
    given = walk.same(real[0]["args"][:4], fake[0]["args"][:4])
    return given and walk.same(real[0]["results"][:3], fake[0]["results"][:3])


def _staged(walk, real, _):
    """The copy's target is what the collective before it writes."""
    before = next(op for op in reversed(walk.real[: walk.at[0]]) if op["name"] != "wait")
    written = {view["view"][0] for view in before["writes"]}
    return before["name"].startswith("c10d.") and real[0]["args"][0]["view"][0] in written


_CPU = "aten._scaled_dot_product_flash_attention_for_cpu"
_GPU = "aten._scaled_dot_product_efficient_attention"

DIFFERENCES = (
    Difference(
        "in single precision a GPU takes efficient attention, whose result lies position by "
        "position in memory; the CPU's kernel has another name, and its result lies head by head, "
        "so that joining heads copies",
        (f"{_CPU}.default", "aten.clone.default"),
        (f"{_GPU}.default",),
        _attention,
    ),
    Difference(
        "the gradient of the CPU's attention kernel has another name",
        (f"{_CPU}_backward.default",),
        (f"{_GPU}_backward.default",),
        _attention_backward,
    ),
    Difference(
        "gloo reduce-scatters by an all-reduce into a buffer of its own, and copies its part",
        ("aten.copy_.default",),
        (),
        _staged,
    ),
)
