"""Import of Transformer Engine without CUDA libraries, and its extension's place.

The idea: ``transformer_engine.common`` loads libcudnn, libtransformer_engine and the extension when
it is imported.  Where it is being built it does not (``NVTE_PROJECT_BUILDING``); the extension is
a module of Flint, and the wrappers whose arguments differ between releases are replaced by name.

    apply(); import transformer_engine.pytorch as te
"""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from types import ModuleType
from typing import Any

from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from flint.errors import FlintError
from flint.frontends.torch.patching import around
from flint.frontends.torch.user_lines import at_user_line
from flint.host.imports import watch_imports
from flint.launching.notes import noted

_PACKAGE = "transformer_engine"
_EXTENSION = "transformer_engine_torch"
_WRAPPERS = f"{_PACKAGE}.pytorch.cpp_extensions"
_ROUTER = f"{_PACKAGE}.pytorch.router"
_CHOICE = f"{_PACKAGE}.pytorch.attention.dot_product_attention.utils"

#: Modules of Flint with functions of the extension.
_PARTS = (
    "enums", "runtime", "norms", "activations", "softmax", "rotary", "optimizers", "quantizing",
)  # fmt: skip


def apply() -> None:
    """Stand in for the extension, from the package's import on."""
    os.environ["NVTE_PROJECT_BUILDING"] = "1"
    if "jax" not in sys.modules:
        # The package would import jax, which may only be there because Flint needs it; as jax's
        # own part it has no stand-in.
        modules: dict[str, Any] = sys.modules
        modules.setdefault(f"{_PACKAGE}.jax", None)
    watch_imports(
        {
            f"{_PACKAGE}.common": _place,
            f"{_WRAPPERS}.gemm": _replace_gemm,
            f"{_WRAPPERS}.fused_attn": _replace_attention,
            _ROUTER: _replace_router,
            _CHOICE: _watch_choice,
        }
    )


def _place() -> None:
    common: Any = importlib.import_module(f"{_PACKAGE}.common")
    common.load_framework_extension = _load


def _load(framework: str) -> None:
    if framework != "torch":
        raise FileNotFoundError("Could not find shared object file for Transformer Engine")
    if _EXTENSION not in sys.modules:
        noted[
            "Transformer Engine's extension is not loaded: its kernels are recorded as PyTorch's"
        ] += 1
        sys.modules[_EXTENSION] = _extension()


def _extension() -> ModuleType:
    module = ModuleType(_EXTENSION)
    for part in _PARTS:
        found = importlib.import_module(f"{__package__}.{part}")
        module.__dict__.update({k: v for k, v in vars(found).items() if not k.startswith("_")})
    module.__dict__["__getattr__"] = _lacking
    return module


def _lacking(name: str) -> Any:
    """Functions without a stand-in are found, and end a program that calls them."""
    if name.startswith("_"):
        raise AttributeError(name)

    def refuse(*_: Any, **__: Any) -> Any:
        raise FlintError(f"transformer_engine_torch.{name}{at_user_line()} has no stand-in")

    return refuse


def _replace_gemm() -> None:
    from flint.frontends.torch.programs.transformer_engine import products

    _by_name(f"{_WRAPPERS}.gemm", products, ("general_gemm", "general_grouped_gemm"))


def _replace_attention() -> None:
    from flint.frontends.torch.programs.transformer_engine import attention

    _by_name(f"{_WRAPPERS}.fused_attn", attention, ("fused_attn_fwd", "fused_attn_bwd"))


def _replace_router() -> None:
    from flint.frontends.torch.programs.transformer_engine import routing

    names = ("fused_topk_with_score_function", "fused_compute_score_for_moe_aux_loss")
    _by_name(_ROUTER, routing, (*names, "fused_moe_aux_loss"))


def _watch_choice() -> None:
    around(importlib.import_module(_CHOICE), "get_attention_backend", _choose)


def _choose(original: Any, params: Any) -> Any:
    """The kernel of attention, chosen as for plain tensors: fake ones have another type."""
    if getattr(params, "qkv_type", None) is FakeTensor:
        params = replace(params, qkv_type=Tensor)
    return original(params)


def _by_name(target: str, source: ModuleType, names: tuple[str, ...]) -> None:
    """Replace wrappers by functions of a mapping of their arguments' names to values."""
    module: Any = importlib.import_module(target)
    for name in names:
        setattr(module, name, _named(getattr(module, name), getattr(source, name)))


def _named(original: Callable[..., Any], ours: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(original)

    def call(*args: Any, **kwargs: Any) -> Any:
        given = signature.bind(*args, **kwargs)
        given.apply_defaults()
        return ours(given.arguments)

    return call
