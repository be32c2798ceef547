"""What a kernel computes, counted while Inductor writes its source.

The idea: the loop bodies of a kernel's nodes call one handler, which gives equal expressions one
variable.  A new variable is an operation of the source, done for each element of the variable's
block: what follows from values of a row is computed once per row.

    watch()                 # once
    work_of(kernel)         # 8 operations for each of 512 x 256 elements, and a root per row

Private parts of torch._inductor, as in torch 2.12 to 2.14 (``adapter.py`` has the rest).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

from torch.utils import _pytree as pytree

from flint.frontends.torch.context import capture
from flint.frontends.torch.inductor import adapter
from flint.frontends.torch.inductor.operations import NOTHING, TRANSCENDENTAL
from flint.frontends.torch.patching import always_around

#: What is said of sizes that are symbols.
_UNKNOWN = (
    "torch.compile: kernels work on tensors whose sizes depend on values: such a size is counted "
    "as 1"
)
#: Reductions that are not one operation per element -> how many they are, and special functions: as
#: ``triton_helpers`` has them, for what does not fit in a block.  If it fits, Inductor writes
#: simpler operations, which are counted as such.
_PER_REDUCED = {
    "welford_reduce": (7, 0), "welford_combine": (14, 0), "online_softmax_reduce": (8, 2),
}  # fmt: skip
#: Stands for blocks of all of a kernel's dims.
_ALL = ("all",)


@dataclass(slots=True)
class _Count:
    """Operations of a kernel.

    Attributes:
        plain, special: shape of a block -> how many of its elements' operations, and functions.
        known: names of variables that are counted.
        steps: how many there are, apart from conversions.
        is_address: whether an address is being computed.
    """

    plain: Counter[tuple[str, ...]] = field(default_factory=Counter)
    special: Counter[tuple[str, ...]] = field(default_factory=Counter)
    known: set[str] = field(default_factory=set)
    steps: int = 0
    is_address: bool = False

    def new(self, made: Any, given: Any = ()) -> Any:
        """A variable that has not been seen; None if there is none."""
        before = self.known | set(map(str, _variables(given)))
        found = [item for item in _variables(made) if str(item) not in before]
        self.known.update(map(str, found))
        return None if self.is_address or not found else found[0]


_counts: WeakKeyDictionary[Any, _Count] = WeakKeyDictionary()


def watch() -> None:
    """Count what kernels compute from now on."""
    from torch._inductor.codegen.common import CSEProxy

    for name, function in {
        "_default": _applied, "reduction": _reduced, "scan": _scanned, "sort": _sorted,
        "store": _stored, "indirect_indexing": _addressed,
    }.items():  # fmt: skip
        always_around(CSEProxy, name, function)


def work_of(kernel: Any) -> tuple[int, int]:
    """Elementary operations and applications of special functions of a kernel, or of its parts."""
    plain = special = 0
    for part in getattr(kernel, "sub_kernels", [kernel]):
        count = _counts.get(part, _Count())
        sizes = {f"{tree.prefix.upper()}BLOCK": tree.numel for tree in part.range_trees}
        for shape in dict.fromkeys((*count.plain, *count.special)):
            blocks = shape if {*shape} <= {*sizes, "1"} else tuple(sizes)
            elements = product(adapter.graph_now(), [sizes.get(block, 1) for block in blocks])
            plain += count.plain[shape] * elements
            special += count.special[shape] * elements
    return plain, special


def product(graph: Any, sizes: Iterable[Any]) -> int:
    """A product of sizes of a graph."""
    return math.prod(size_of(graph, size) for size in sizes)


def size_of(graph: Any, size: Any) -> int:
    """A size; those that follow from values, which are not known, with a warning."""
    if getattr(size, "free_symbols", None):
        capture().not_compiled[_UNKNOWN] += 1
    return int(graph.sizevars.optimization_hint(size, fallback=1))


def _count(proxy: Any) -> _Count:
    """The count of the kernel being written; what a template's source has is not of nodes."""
    kernel = proxy.kernel
    if getattr(kernel, "current_node", None) is None:
        return _Count()
    return _counts.setdefault(kernel, _Count())


def _variables(item: Any) -> Iterator[Any]:
    from torch._inductor.codegen.common import CSEVariable

    return (leaf for leaf in pytree.tree_leaves(item) if isinstance(leaf, CSEVariable))


def _block(variable: Any) -> tuple[str, ...]:
    shape = variable.shape
    return _ALL if shape is None else tuple(map(str, shape))


def _applied(original: Any, proxy: Any, name: str, args: Any, kwargs: Any) -> Any:
    made = original(proxy, name, args, kwargs)
    count = _count(proxy)
    if name not in NOTHING and (variable := count.new(made, (args, kwargs))) is not None:
        (count.special if name in TRANSCENDENTAL else count.plain)[_block(variable)] += 1
        count.steps += name != "to_dtype"
    return made


def _reduced(original: Any, proxy: Any, *args: Any) -> Any:
    count = _count(proxy)
    before = count.steps
    made = original(proxy, *args)
    if count.new(made) is not None and count.steps == before:  # not written as other operations
        plain, special = _PER_REDUCED.get(args[2], (1, 0))
        count.plain[_ALL] += plain
        count.special[_ALL] += special
        count.steps += 1
    return made


def _scanned(original: Any, proxy: Any, dtypes: Any, combine: Any, values: Any) -> Any:
    made = original(proxy, dtypes, combine, values)
    count = _count(proxy)
    if count.new(made) is not None:
        for name in _names(combine, len(values)):
            (count.special if name in TRANSCENDENTAL else count.plain)[_ALL] += 1
    return made


def _names(combine: Any, count: int) -> list[str]:
    """What a function of two sets of values computes."""
    from torch._inductor.ops_handler import DefaultHandler
    from torch._inductor.virtualized import V

    found: dict[str, str] = {}

    class Handler(DefaultHandler):
        def _default(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            expression = f"{name}{args}{kwargs}"
            found[expression] = name
            return expression

    with V.set_ops_handler(Handler()):
        first, second = (tuple(f"{which}{each}" for each in range(count)) for which in "ab")
        combine(first, second)
    return [name for name in found.values() if name not in NOTHING]


def _sorted(original: Any, proxy: Any, *args: Any, **kwargs: Any) -> Any:
    made = original(proxy, *args, **kwargs)
    count = _count(proxy)
    if count.new(made) is not None:
        # Bitonic: of a row of 2**k elements, k (k + 1) / 2 times half as many pairs.
        k = (int(proxy.kernel.range_trees[-1].numel) - 1).bit_length()
        count.plain[_ALL] += k * (k + 1) // 4
    return made


def _stored(original: Any, proxy: Any, *args: Any, **kwargs: Any) -> None:
    original(proxy, *args, **kwargs)
    if "atomic_add" in (*args[3:], *kwargs.values()):
        _count(proxy).plain[_ALL] += 1


def _addressed(original: Any, proxy: Any, *args: Any, **kwargs: Any) -> Any:
    count = _count(proxy)
    before, count.is_address = count.is_address, True
    try:
        return original(proxy, *args, **kwargs)
    finally:
        count.is_address = before
