"""The table of lowerings: "aten.op.overload" or "aten.op" (every overload) -> function.

The idea: an op is looked up by its full name, then without the overload, then as the out-of-place
op that it is a variant of: ``aten.add_.Tensor`` and ``aten.add.out`` are ``aten.add``, because the
written tensor does not concern the lowering; a whole namespace may be one row.  Ops not in the
table are decomposed as in PyTorch (``decomposed.py``).

    @lowers("aten.mm", "aten.bmm")
    def product(call, self, mat2): ...
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from flint.frontends.torch.lowerings.calls import Call
from flint.frontends.torch.lowerings.decomposed import decomposition_of, lowered_in_torch

Lowering = Callable[..., Any]

TABLE: dict[str, Lowering] = {}


def lowers(*names: str) -> Callable[[Lowering], Lowering]:
    """Enter a function as the lowering of ops."""

    def enter(function: Lowering) -> Lowering:
        for name in names:
            if name in TABLE:
                raise ValueError(f"{name} has a lowering")
            TABLE[name] = function
        return function

    return enter


def in_torch(*names: str) -> Callable[[Lowering], Lowering]:
    """Enter a function of the call and tensors, computed by PyTorch's ops, as the lowering of ops.

    Tensors of half types come as float32, which their kernels compute in.
    """

    def enter(function: Lowering) -> Lowering:
        def lower(call: Call, *args: Any, **kwargs: Any) -> Any:
            with_call = functools.partial(function, call)
            return lowered_in_torch(with_call, lowering_of, call, *args, widened=True, **kwargs)

        lowers(*names)(lower)
        return function

    return enter


def lowering_of(name: str) -> Lowering | None:
    """The lowering of "namespace.op.overload", or None."""
    found = TABLE.get(entry_of(name) or "")
    return decomposition_of(name, lowering_of) if found is None else found


def entry_of(name: str) -> str | None:
    """The row of an op in the table, or None."""
    namespace, base, *rest = name.split(".")
    plain = base[:-1] if base.endswith("_") and not base.endswith("__") else base
    overload = ".".join(rest).removesuffix("_out")
    exact = (name, f"{namespace}.{plain}.{overload}")
    for key in (*exact, f"{namespace}.{base}", f"{namespace}.{plain}", namespace):
        if key in TABLE:
            return key
    return None
