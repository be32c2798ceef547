"""Gradients that PyTorch writes into new zeros in place, except under a mode.

The idea: the gradient of ``x[i]`` is written into new zeros.  If subclasses of tensors or modes may
hold these, PyTorch writes it into a copy instead (areAnyTensorSubclassLike in FunctionsManual.cpp);
a recorder is such a mode, and undoes that.

    IN_PLACE[torch.ops.aten.scatter.src]     # (torch.ops.aten.scatter_.src, ())
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from flint.frontends.torch.recording.recording import Op, View

_aten: Any = torch.ops.aten

#: The dispatched op -> the in-place op, and its further arguments.
IN_PLACE: Mapping[Any, tuple[Any, tuple[Any, ...]]] = {
    _aten.index_put.default: (_aten._index_put_impl_.default, (True,)),
    _aten.scatter.src: (_aten.scatter_.src, ()),
    _aten.scatter_add.default: (_aten.scatter_add_.default, ()),
    _aten.index_add.default: (_aten.index_add_.default, ()),
    _aten.put.default: (_aten.put_.default, ()),
}

_ZEROS = frozenset(
    f"aten.{name}" for name in ("zeros.default", "zeros_like.default", "new_zeros.default")
)


def new_zeros(ops: Sequence[Op]) -> View | None:
    """The zeros created by the last op, if one of PyTorch's own gradients is being computed."""
    node: Any = torch._C._current_autograd_node()
    if node is None or isinstance(node, torch.autograd.function.BackwardCFunction):
        return None
    if not ops or ops[-1].name not in _ZEROS:
        return None
    result = ops[-1].results[0]
    return result if isinstance(result, View) else None
