"""DTensor's thinking about shapes.

To know an op's global result DTensor runs the op on fake tensors of the global shapes.  No rank
computes that: nothing of it is recorded.
"""

from __future__ import annotations

import functools
from typing import Any

from flint.frontends.torch.modes import unseen


def apply() -> None:
    """Hide DTensor's thinking from what records."""
    from torch.distributed.tensor import _sharding_prop

    kind: Any = _sharding_prop.ShardingPropagator
    original = kind._propagate_tensor_meta_non_cached

    @functools.wraps(original)
    def propagate(*args: Any, **kwargs: Any) -> Any:
        with unseen():
            return original(*args, **kwargs)

    kind._propagate_tensor_meta_non_cached = propagate
