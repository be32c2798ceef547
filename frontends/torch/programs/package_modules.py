"""Packages of GPU kernels that have a stand-in: their modules, and what is in them.

The idea: a module of a stand-in has functions of Flint's modules that are named here, under the
package's own names.

    module_of("flash_attn", "flash_attn").flash_attn_func(q, k, v)
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from types import ModuleType

_ATTENTION = (
    "flash_attn_func", "flash_attn_qkvpacked_func", "flash_attn_kvpacked_func",
    "flash_attn_varlen_func", "flash_attn_varlen_qkvpacked_func",
    "flash_attn_varlen_kvpacked_func", "flash_attn_with_kvcache",
)  # fmt: skip
_KERNELS = (
    "_flash_attn_forward", "_flash_attn_backward", "_flash_attn_varlen_forward",
    "_flash_attn_varlen_backward",
)  # fmt: skip
_EXCHANGES = (
    "AllGatherFunc", "AllReduceFunc", "ReduceScatterFunc", "all_gather", "all_gather_raw",
    "all_reduce", "all_reduce_raw", "reduce_scatter", "reduce_scatter_raw",
)  # fmt: skip
#: Modules of flash_attn, and what they have.
_FLASH_ATTN = {
    "": _ATTENTION,
    ".flash_attn_interface": (*_ATTENTION, *_KERNELS),
    ".bert_padding": ("index_first_axis", "pad_input", "rearrange", "repeat", "unpad_input"),
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
    ".utils": (),
    ".utils.distributed": _EXCHANGES,
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
_NORMS = ("FusedLayerNorm", "FusedRMSNorm", "MixedFusedLayerNorm", "MixedFusedRMSNorm")
#: Modules of APEX.
_APEX = {
    "": (),
    ".multi_tensor_apply": ("MultiTensorApply", "multi_tensor_applier"),
    ".normalization": _NORMS,
    ".normalization.fused_layer_norm": (
        *_NORMS, "FusedLayerNormAffineFunction", "FusedRMSNormAffineFunction",
    ),
    ".optimizers": ("FusedAdam", "FusedSGD"),
}  # fmt: skip
#: The extension with its kernels over lists of tensors.
_APEX_LISTS = {
    "": (
        "multi_tensor_adam", "multi_tensor_axpby", "multi_tensor_l2norm", "multi_tensor_scale",
    ),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Package:
    """A package with a stand-in.

    Attributes:
        version: whose functions they are.
        of: the modules of Flint that have them.
        modules: module -> what it has.
        stands: what the report says of it.
        called: other names of it in messages.
        distribution: what pip calls it, if not by the module's name.
        said: whether only Python's own words say that it is missing: its name is a common word.
        extensions: what is installed with it, with stand-ins of their own.
    """

    version: str
    of: tuple[str, ...]
    modules: Mapping[str, tuple[str, ...]]
    stands: str
    called: tuple[str, ...] = ()
    distribution: str = ""
    said: bool = False
    extensions: tuple[str, ...] = ()

    def names(self, module: str) -> tuple[str, ...]:
        """The texts of messages that mean it."""
        if self.said:
            return (f"No module named {module!r}",)
        return module, module.replace("_", "-"), *self.called


#: Those with a stand-in; where a name begins with another, the longer one comes first.
PACKAGES = {
    "flash_attn_interface": Package(
        "3.0.0",
        ("flash_attention3",),
        _FLASH_ATTN_3,
        "its functions are recorded as PyTorch's own",
        ("flash_attn_3", "flash-attn-3", "FlashAttention3"),
        "flash_attn_3",
    ),
    "flash_attn": Package(
        "2.8.3",
        ("flash_attention", "flash_kernels", "flash_utilities"),
        _FLASH_ATTN,
        "its functions are recorded as PyTorch's own",
        ("FlashAttention2",),
    ),
    "deep_ep": Package(
        "1.2.1",
        ("expert_exchange",),
        _DEEP_EP,
        "its exchanges are recorded as all-to-alls of its rows",
        ("DeepEP",),
    ),
    "grouped_gemm": Package(
        "1.1.4",
        ("grouped_gemm",),
        _GROUPED_GEMM,
        "its products are recorded as torch._grouped_mm",
    ),
    "fused_weight_gradient_mlp_cuda": Package(
        "0.1",
        ("apex_gradients",),
        {"": ("wgrad_gemm_accum_fp32", "wgrad_gemm_accum_fp16")},
        "its products are recorded as PyTorch's with an addition",
    ),
    "apex": Package(
        "0.1",
        ("apex_kernels",),
        _APEX,
        "its norms and optimizers are recorded as PyTorch's own",
        said=True,
        extensions=("amp_C", "fused_layer_norm_cuda"),
    ),
    "amp_C": Package(
        "0.1",
        ("apex_kernels",),
        _APEX_LISTS,
        "its kernels are recorded as PyTorch's ops over lists",
        said=True,
    ),
    "fused_layer_norm_cuda": Package(
        "0.1", (), {"": ()}, "its norms are recorded as PyTorch's own", said=True
    ),
    "kernels": Package(
        "0.1.0",
        ("hub_kernels",),
        {"": ("get_kernel",)},
        "what it loads from the hub are functions recorded as PyTorch's own",
        said=True,
    ),
}


def fill(module: ModuleType, package: Package, part: str) -> None:
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
    for inner in inner_parts(stand_in):
        part = ModuleType(name + inner)
        fill(part, stand_in, inner)
        setattr(made, inner[1:], part)
    return made


def inner_parts(package: Package) -> list[str]:
    """The modules directly inside of a package, with a dot in front."""
    return [name for name in package.modules if name.count(".") == 1]
