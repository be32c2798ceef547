"""Packages of GPU kernels that are not installed here, and that the program imports.

The idea: flash_attn is built for GPUs, so the machine of a capture rarely has it.  Most programs
that can use it can do without it, and they decide by importing it; one that cannot ends there.
Only then does the program run again, with modules of the same names, whose functions are those of
``flash_attention.py``.

    provide(); from flash_attn import flash_attn_func
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

from flint.launching.outside import noted

_PACKAGE = "flash_attn"
#: flash_attn's version whose functions they are.
_VERSION = "2.8.3"
_ATTENTION = (
    "flash_attn_func", "flash_attn_qkvpacked_func", "flash_attn_kvpacked_func",
    "flash_attn_varlen_func", "flash_attn_varlen_qkvpacked_func",
    "flash_attn_varlen_kvpacked_func",
)  # fmt: skip
#: Module -> what it has.
_MODULES = {
    "": _ATTENTION,
    ".flash_attn_interface": _ATTENTION,
    ".bert_padding": ("index_first_axis", "pad_input", "unpad_input"),
    ".layers": (),
    ".layers.rotary": ("apply_rotary_emb",),
    ".losses": (),
    ".losses.cross_entropy": ("CrossEntropyLoss",),
    ".ops": (),
    ".ops.activations": ("swiglu",),
    ".ops.rms_norm": ("RMSNorm", "rms_norm"),
    ".ops.triton": (),
    ".ops.triton.cross_entropy": ("cross_entropy_loss",),
    ".ops.triton.layer_norm": ("RMSNorm", "layer_norm_fn", "rms_norm_fn"),
}


def ended(error: BaseException) -> bool:
    """Whether a program ended because such a package is missing."""
    return any(
        isinstance(item, ImportError)
        and any(name in str(item) for name in (_PACKAGE, _PACKAGE.replace("_", "-")))
        for item in _causes(error)
    )


def provide() -> None:
    """Let the program import them if they are not installed."""
    if importlib.util.find_spec(_PACKAGE) is None:
        sys.meta_path.append(_Finder())
        noted[f"{_PACKAGE} is not installed: its functions are recorded as PyTorch's own"] += 1


def _causes(error: BaseException) -> Iterator[BaseException]:
    found: BaseException | None = error
    while found is not None:
        yield found
        found = found.__cause__ or found.__context__


class _Finder(MetaPathFinder, Loader):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """As any finder."""
        name = fullname.removeprefix(_PACKAGE)
        if not fullname.startswith(_PACKAGE) or name not in _MODULES:
            return None
        return ModuleSpec(fullname, self, is_package=True)

    def exec_module(self, module: ModuleType) -> None:
        """Fill a module."""
        from flint.frontends.torch.programs import flash_attention

        module.__dict__["__version__"] = _VERSION
        for name in _MODULES[module.__name__.removeprefix(_PACKAGE)]:
            setattr(module, name, getattr(flash_attention, name))
