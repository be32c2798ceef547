"""In which precision products of f32 run.

The idea: PyTorch multiplies f32 exactly, on vector units, unless the program allows TF32
(``torch.set_float32_matmul_precision``, ``torch.backends.cuda.matmul``).  cuDNN's kernels have a
switch of their own, which is on by default: convolutions, which do not ask here, and recurrent
layers, whose products are recorded one by one.

    with of_cudnn(): ...                # a recurrent layer's forward pass
    exact("aten.mm.default", place)     # whether a product that runs now is exact
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from flint.frontends.torch.recording.tracking import Place

#: Ops that are matrix products.
_PRODUCTS = frozenset("addmm addmv baddbmm bmm dot mm mv vdot".split())
#: Modules of recurrent layers: the products of their backward pass are cuDNN's too.
_recurrent: set[str] = set()
_inside: list[None] = []


@contextlib.contextmanager
def of_cudnn() -> Iterator[None]:
    """Products within are those of a kernel of cuDNN."""
    _inside.append(None)
    try:
        yield
    finally:
        _inside.pop()


def exact(name: str, place: Place) -> bool:
    """Whether an op that is recorded at a place multiplies f32 exactly."""
    if name.split(".")[1] not in _PRODUCTS:
        return False
    if _inside and place.module:
        _recurrent.add(place.module)
    backends: Any = torch.backends
    cudnn = bool(_inside) or place.module in _recurrent
    return not _allows_tf32(backends.cudnn if cudnn else backends.cuda.matmul)


def _allows_tf32(backend: Any) -> bool:
    try:
        return bool(backend.allow_tf32)
    except RuntimeError:  # the program uses the newer setting, or both
        own = backend.fp32_precision
        return str(torch.backends.fp32_precision if own == "none" else own) == "tf32"
