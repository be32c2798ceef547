"""Packages of GPU kernels that are not installed here, and that the program imports.

The idea: flash_attn, deep_ep and grouped_gemm are built for GPUs, so the machine of a capture
rarely has them.  Most programs that can use them can do without, and they decide by importing them;
one that cannot ends there.  Only then does the program run again, with modules of the same names,
whose functions are those of ``flash_attention.py``, ``flash_attention3.py``, ``flash_kernels.py``,
``expert_exchange.py``, ``grouped_gemm.py`` and ``hub_kernels.py``.

    provide(["flash_attn"]); from flash_attn import flash_attn_func
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

from flint.launching.notes import noted

_ATTENTION = (
    "flash_attn_func", "flash_attn_qkvpacked_func", "flash_attn_kvpacked_func",
    "flash_attn_varlen_func", "flash_attn_varlen_qkvpacked_func",
    "flash_attn_varlen_kvpacked_func", "flash_attn_with_kvcache",
)  # fmt: skip
_KERNELS = (
    "_flash_attn_forward", "_flash_attn_backward", "_flash_attn_varlen_forward",
    "_flash_attn_varlen_backward",
)  # fmt: skip
#: Modules of flash_attn, and what they have.
_FLASH_ATTN = {
    "": _ATTENTION,
    ".flash_attn_interface": (*_ATTENTION, *_KERNELS),
    ".bert_padding": ("index_first_axis", "pad_input", "unpad_input"),
    ".layers": (),
    ".layers.rotary": ("RotaryEmbedding", "apply_rotary_emb"),
    ".losses": (),
    ".losses.cross_entropy": ("CrossEntropyLoss",),
    ".modules": (),
    ".modules.mha": _ATTENTION,
    ".ops": (),
    ".ops.activations": ("swiglu",),
    ".ops.rms_norm": ("RMSNorm", "rms_norm"),
    ".ops.triton": (),
    ".ops.triton.cross_entropy": ("cross_entropy_loss",),
    ".ops.triton.layer_norm": ("RMSNorm", "layer_norm_fn", "rms_norm_fn"),
}
#: What FlashAttention 3 has: one module, whose name is not its distribution's.
_FLASH_ATTN_3 = {
    "": (
        "flash_attn_func", "flash_attn_qkvpacked_func", "flash_attn_varlen_func",
        "flash_attn_with_kvcache", "flash_attn_combine", "_flash_attn_forward",
        "_flash_attn_backward",
    ),
}  # fmt: skip
#: Modules of grouped_gemm.
_GROUPED_GEMM = {"": (), ".ops": ("gmm", "permute", "unpermute"), ".backend": ("gmm",)}
#: Modules of deep_ep.
_DEEP_EP = {
    "": ("Buffer", "Config", "EventOverlap"),
    ".buffer": ("Buffer",),
    ".utils": ("EventHandle", "EventOverlap"),
}


@dataclass(frozen=True, slots=True)
class _Package:
    """A package with a stand-in.

    Attributes:
        version: whose functions they are.
        of: the modules of Flint that have them.
        modules: module -> what it has.
        stands: what the report says of it.
        called: other names of it in messages.
        distribution: what pip calls it, if not by the module's name.
        said: whether only Python's own words say that it is missing: its name is a common word.
    """

    version: str
    of: tuple[str, ...]
    modules: Mapping[str, tuple[str, ...]]
    stands: str
    called: tuple[str, ...] = ()
    distribution: str = ""
    said: bool = False

    def names(self, module: str) -> tuple[str, ...]:
        """The texts of messages that mean it."""
        if self.said:
            return (f"No module named {module!r}",)
        return module, module.replace("_", "-"), *self.called


#: Those with a stand-in; where a name begins with another, the longer one comes first.
PACKAGES = {
    "flash_attn_interface": _Package(
        "3.0.0",
        ("flash_attention3",),
        _FLASH_ATTN_3,
        "its functions are recorded as PyTorch's own",
        ("flash_attn_3", "flash-attn-3"),
        "flash_attn_3",
    ),
    "flash_attn": _Package(
        "2.8.3",
        ("flash_attention", "flash_kernels"),
        _FLASH_ATTN,
        "its functions are recorded as PyTorch's own",
    ),
    "deep_ep": _Package(
        "1.2.1",
        ("expert_exchange",),
        _DEEP_EP,
        "its exchanges are recorded as all-to-alls of its rows",
        ("DeepEP",),
    ),
    "grouped_gemm": _Package(
        "1.1.4",
        ("grouped_gemm",),
        _GROUPED_GEMM,
        "its products are recorded as torch._grouped_mm",
    ),
    "fused_weight_gradient_mlp_cuda": _Package(
        "0.1",
        ("apex_gradients",),
        {"": ("wgrad_gemm_accum_fp32", "wgrad_gemm_accum_fp16")},
        "its products are recorded as PyTorch's with an addition",
    ),
    "kernels": _Package(
        "0.1.0",
        ("hub_kernels",),
        {"": ("get_kernel",)},
        "what it loads from the hub are functions recorded as PyTorch's own",
        said=True,
    ),
}


def needed(error: BaseException, given: tuple[str, ...]) -> tuple[str, ...]:
    """The packages with which a program runs again that ended; none if it ended otherwise.

    Args:
        error: that it ended with.
        given: the packages that it had.
    """
    said = [
        str(item)
        for item in _causes(error)
        if isinstance(item, ImportError) or "install" in str(item)  # their programs' own words
    ]
    for package, stand_in in PACKAGES.items():
        names = stand_in.names(package)
        if package not in given and any(name in text for text in said for name in names):
            return (*given, package)
    return ()


def provide(packages: Iterable[str]) -> None:
    """Let the program import these packages where they are not installed; DeepSpeed's kernels,
    which it compiles itself, are always here."""
    from flint.frontends.torch.programs import (  # imports torch
        deepspeed_kernels,
        hub_kernels,
        xformers,
    )
    from flint.frontends.torch.programs.transformer_engine import loading

    deepspeed_kernels.apply()
    hub_kernels.apply()
    loading.apply()
    xformers.apply()
    for name in packages:
        if importlib.util.find_spec(name) is None:
            sys.meta_path.append(_Finder(name, PACKAGES[name]))


def _causes(error: BaseException) -> Iterator[BaseException]:
    found: BaseException | None = error
    while found is not None:
        yield found
        found = found.__cause__ or found.__context__


class _Distribution(metadata.Distribution):
    """What pip would have noted: transformers asks it whose package it is."""

    def __init__(self, module: str, called: str, version: str) -> None:
        self._files = {
            "METADATA": f"Metadata-Version: 2.1\nName: {called}\nVersion: {version}\n",
            "top_level.txt": f"{module}\n",
        }

    def read_text(self, filename: str) -> str | None:
        return self._files.get(filename)

    def locate_file(self, path: Any) -> Any:
        return Path(path)


class _Finder(MetaPathFinder, Loader):
    def __init__(self, name: str, package: _Package) -> None:
        self._name, self._package = name, package

    def find_distributions(self, context: Any) -> Iterator[metadata.Distribution]:
        """As ``importlib.metadata`` asks every finder."""
        called = self._package.distribution or self._name
        if context.name is None or context.name.replace("-", "_") == called:
            yield _Distribution(self._name, called.replace("_", "-"), self._package.version)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """As any finder."""
        name = fullname.removeprefix(self._name)
        if not fullname.startswith(self._name) or name not in self._package.modules:
            return None
        return ModuleSpec(fullname, self, is_package=True)

    def exec_module(self, module: ModuleType) -> None:
        """Fill a module."""
        part = module.__name__.removeprefix(self._name)
        if not part:
            noted[f"{self._name} is not installed: {self._package.stands}"] += 1
        fill(module, self._package, part)
        if not part:  # ``import grouped_gemm; grouped_gemm.ops``
            for inner in _inner(self._package):
                importlib.import_module(self._name + inner)


def fill(module: ModuleType, package: _Package, part: str) -> None:
    """Give a module what that part of a package has."""
    from flint.frontends.torch import programs

    of = (f"{programs.__name__}.{name}" for name in package.of)
    sources = [vars(importlib.import_module(name)) for name in of]
    module.__dict__["__version__"] = package.version
    for name in package.modules[part]:
        setattr(module, name, next(found[name] for found in sources if name in found))


def module_of(name: str, package: str) -> ModuleType:
    """A module of that name, and all that it contains, which nobody can import."""
    made, stand_in = ModuleType(name), PACKAGES[package]
    fill(made, stand_in, "")
    for inner in _inner(stand_in):
        part = ModuleType(name + inner)
        fill(part, stand_in, inner)
        setattr(made, inner[1:], part)
    return made


def _inner(package: _Package) -> list[str]:
    return [name for name in package.modules if name.count(".") == 1]
