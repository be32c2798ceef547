"""APEX's norms, optimizers and kernels over lists of tensors, for programs that cannot do without.

The idea: Megatron's and DeepSpeed's older programs import APEX wherever there is a GPU.  Its norms
are PyTorch's, its updates PyTorch's fused ones; what a kernel does to a list of tensors is an op of
PyTorch over lists.

    from apex.normalization import MixedFusedRMSNorm; from apex.optimizers import FusedAdam
    multi_tensor_applier(amp_C.multi_tensor_l2norm, overflow, [gradients], False)
"""

from __future__ import annotations

import numbers
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from flint.frontends.torch.programs.fused_updates import adam_update

Lists = Sequence[list[Tensor]]


class MultiTensorApply:
    """What calls a kernel over lists, which gets as many elements at a time as it says."""

    available = True

    def __init__(self, chunk: int) -> None:
        """Elements that a block of the kernel takes."""
        self.chunk_size = chunk

    def __call__(
        self, kernel: Callable[..., Any], overflow: Tensor, lists: Lists, *rest: Any
    ) -> Any:
        """Call a kernel on lists of tensors."""
        return kernel(self.chunk_size, overflow, lists, *rest)


multi_tensor_applier = MultiTensorApply(2048 * 32)


def multi_tensor_scale(_chunk: int, _overflow: Tensor, lists: Lists, scale: Any) -> None:
    """Write the first list, multiplied by a number, into the second."""
    source, target = lists
    torch._foreach_copy_(target, torch._foreach_mul(source, scale))


def multi_tensor_axpby(
    _chunk: int, _overflow: Tensor, lists: Lists, a: float, b: float, _checked: int = -1
) -> None:
    """Write ``a x + b y`` into the third list."""
    x, y, target = lists
    sums = torch._foreach_add(torch._foreach_mul(x, a), torch._foreach_mul(y, b))
    torch._foreach_copy_(target, sums)


def multi_tensor_l2norm(
    _chunk: int, _overflow: Tensor, lists: Lists, per_tensor: bool = False
) -> tuple[Tensor, Tensor]:
    """The norm of all tensors [1], and of each [tensors] if it is wanted."""
    norms = torch.stack([item.float() for item in torch._foreach_norm(lists[0])])
    whole = torch.linalg.vector_norm(norms).reshape(1)
    return whole, norms if per_tensor else whole.new_empty(0)


def multi_tensor_adam(
    _chunk: int, _overflow: Tensor, lists: Lists, lr: float, beta1: float, beta2: float, eps: float,
    _step: int, decoupled: int, _corrected: int, decay: float,
) -> None:  # fmt: skip
    """Adam's update of gradients, parameters and both averages."""
    adam_update(
        bool(decoupled), list(lists), lr=lr, beta1=beta1, beta2=beta2, eps=eps, weight_decay=decay
    )


class FusedAdam(torch.optim.Optimizer):
    """APEX's Adam: one update for all parameters of a type, with averages in float32."""

    def __init__(
        self, params: Any, lr: float = 1e-3, bias_correction: bool = True,
        betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8, adam_w_mode: bool = True,
        weight_decay: float = 0.0, amsgrad: bool = False, set_grad_none: bool = True,
        capturable: bool = False,
    ) -> None:  # fmt: skip
        """As APEX's, which ignores what it does not know of Adam as well."""
        self.adam_w_mode, self.set_grad_none = adam_w_mode, set_grad_none
        del amsgrad, capturable
        named = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        super().__init__(params, named | {"bias_correction": bias_correction})

    @torch.no_grad()
    def step(self, closure: Any = None, *_: Any) -> Any:
        """Update all parameters that have a gradient."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            group["step"] = group.get("step", 0) + 1
            self._update(group)
        return loss

    def _update(self, group: dict[str, Any]) -> None:
        by_type: dict[torch.dtype, list[list[Tensor]]] = defaultdict(lambda: [[], [], [], []])
        for item in group["params"]:
            if item.grad is None:
                continue
            state = self.state[item]
            for name in ("exp_avg", "exp_avg_sq"):
                if name not in state:
                    state[name] = torch.zeros_like(item, dtype=torch.float32)
            row = (item.grad, item, state["exp_avg"], state["exp_avg_sq"])
            for found, tensor in zip(by_type[item.dtype], row, strict=True):
                found.append(tensor)
        beta1, beta2 = group["betas"]
        for lists in by_type.values():
            adam_update(
                self.adam_w_mode, lists, lr=group["lr"], beta1=beta1, beta2=beta2,
                eps=group["eps"], weight_decay=group["weight_decay"],
            )  # fmt: skip


class FusedSGD(torch.optim.SGD):
    """PyTorch's fused SGD, with APEX's arguments."""

    def __init__(
        self, params: Any, lr: float = 1e-3, momentum: float = 0.0, dampening: float = 0.0,
        weight_decay: float = 0.0, nesterov: bool = False, **_: Any,
    ) -> None:  # fmt: skip
        """As APEX's."""
        super().__init__(params, lr, momentum, dampening, weight_decay, nesterov, fused=True)


def _shape_of(normalized: Any) -> tuple[int, ...]:
    return (int(normalized),) if isinstance(normalized, numbers.Integral) else tuple(normalized)


class FusedLayerNorm(nn.LayerNorm):
    """PyTorch's, with APEX's arguments."""

    def __init__(
        self, normalized_shape: Any, eps: float = 1e-5, elementwise_affine: bool = True,
        memory_efficient: bool = False,
    ) -> None:  # fmt: skip
        """As APEX's."""
        super().__init__(_shape_of(normalized_shape), eps, elementwise_affine)
        self.memory_efficient = memory_efficient

    def forward(self, input: Tensor) -> Tensor:
        """Normalize, in the type of the weight if there is one."""
        kind = input.dtype if self.weight is None else self.weight.dtype
        args = self.normalized_shape, self.weight, self.bias, self.eps
        return functional.layer_norm(input.to(kind), *args)


class FusedRMSNorm(nn.RMSNorm):
    """PyTorch's, with APEX's arguments."""

    def __init__(
        self, normalized_shape: Any, eps: float = 1e-5, elementwise_affine: bool = True,
        memory_efficient: bool = False,
    ) -> None:  # fmt: skip
        """As APEX's."""
        super().__init__(_shape_of(normalized_shape), eps, elementwise_affine)
        self.memory_efficient = memory_efficient

    def forward(self, input: Tensor) -> Tensor:
        """Normalize, in the type of the weight if there is one."""
        kind = input.dtype if self.weight is None else self.weight.dtype
        args = list(self.normalized_shape), self.weight, self.eps
        return functional.rms_norm(input.to(kind), *args)


class MixedFusedLayerNorm(FusedLayerNorm):
    """The same for types that differ, always with parameters."""

    def __init__(self, normalized_shape: Any, eps: float = 1e-5, **named: Any) -> None:
        """As APEX's, which knows more keywords of Megatron's."""
        super().__init__(normalized_shape, eps, True, named.get("memory_efficient", False))
        self.sequence_parallel_enabled = named.get("sequence_parallel_enabled", False)


class MixedFusedRMSNorm(FusedRMSNorm):
    """The same for types that differ, always with parameters."""

    def __init__(self, normalized_shape: Any, eps: float = 1e-5, **named: Any) -> None:
        """As APEX's, which knows more keywords of Megatron's."""
        super().__init__(normalized_shape, eps, True, named.get("memory_efficient", False))
        self.sequence_parallel_enabled = named.get("sequence_parallel_enabled", False)


class FusedLayerNormAffineFunction:
    """A layer norm as APEX's autograd function, which programs call by ``apply``."""

    @staticmethod
    def forward(
        ctx: Any, input: Tensor, weight: Tensor, bias: Tensor, normalized_shape: Any, eps: float,
        memory_efficient: bool = False,
    ) -> Tensor:  # fmt: skip
        """Its arguments are looked at by Megatron's programs."""
        del ctx, memory_efficient
        shape = _shape_of(normalized_shape)
        return functional.layer_norm(input.to(weight.dtype), shape, weight, bias, eps)

    @classmethod
    def apply(cls, *args: Any) -> Tensor:
        """The norm."""
        return cls.forward(None, *args)


class FusedRMSNormAffineFunction:
    """The same without a mean and a bias."""

    @staticmethod
    def forward(
        ctx: Any, input: Tensor, weight: Tensor, normalized_shape: Any, eps: float,
        memory_efficient: bool = False,
    ) -> Tensor:  # fmt: skip
        """Its arguments are looked at by Megatron's programs."""
        del ctx, memory_efficient
        shape = list(_shape_of(normalized_shape))
        return functional.rms_norm(input.to(weight.dtype), shape, weight, eps)

    @classmethod
    def apply(cls, *args: Any) -> Tensor:
        """The norm."""
        return cls.forward(None, *args)
