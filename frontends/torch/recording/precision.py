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

_BACKENDS: Any = torch.backends
#: Ops that are matrix products.
_PRODUCTS = frozenset(["addmm", "addmv", "baddbmm", "bmm", "dot", "mm", "mv", "vdot"])
#: Modules and lines of recurrent layers: their backward pass is cuDNN's too.
_recurrent: set[tuple[str, str, int]] = set()
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
    cudnn = recurrent(place)
    return not _allows_tf32(_BACKENDS.cudnn if cudnn else _BACKENDS.cuda.matmul)


def recurrent(place: Place) -> bool:
    """Whether an op at a place belongs to a recurrent layer, which is one kernel of cuDNN."""
    where = place.module, place.file, place.line
    if _inside and where != ("", "", 0):
        _recurrent.add(where)
    return bool(_inside) or where in _recurrent


def _allows_tf32(backend: Any) -> bool:
    try:
        return bool(backend.allow_tf32)
    except RuntimeError:  # the program uses the newer setting, or both
        own, every = backend.fp32_precision, _BACKENDS
        return str(every.fp32_precision if own == "none" else own) == "tf32"
