"""Activations of the extension, plain and gated, and their backward kernels.

The idea: a table of functions and derivatives; each has one kernel forward and one backward.  A
gated one multiplies the activation of a row's first half by its second half.

    swiglu(x, None); dswiglu(gradient, x, None); dbias_dgelu(gradient, x, quantizer)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from flint.frontends.torch.programs.transformer_engine import quantizing
from flint.frontends.torch.programs.transformer_engine.kernels import kernel

_Function = Callable[[Tensor], Tensor]


def _sigmoid_slope(x: Tensor) -> Tensor:
    sigmoid = torch.sigmoid(x)
    return sigmoid * (1 - sigmoid)


def _silu(x: Tensor) -> Tensor:
    return x * torch.sigmoid(x)


def _silu_slope(x: Tensor) -> Tensor:
    sigmoid = torch.sigmoid(x)
    return sigmoid * (1 + x * (1 - sigmoid))


def _qgelu(x: Tensor) -> Tensor:
    return x * torch.sigmoid(1.702 * x)


def _qgelu_slope(x: Tensor) -> Tensor:
    sigmoid = torch.sigmoid(1.702 * x)
    return sigmoid * (1 + 1.702 * x * (1 - sigmoid))


def _gelu(x: Tensor) -> Tensor:
    return 0.5 * x * (1 + torch.tanh(x * (0.79788456 + 0.03567741 * x * x)))


def _gelu_slope(x: Tensor) -> Tensor:
    tanh = torch.tanh(x * (0.79788456 + 0.03567741 * x * x))
    return 0.5 * (1 + tanh + x * (1 - tanh * tanh) * (0.79788456 + 0.10703222 * x * x))


def _srelu(x: Tensor) -> Tensor:
    return torch.relu(x) * torch.relu(x)


#: Activation -> its function, its derivative, the name of its gated form.
_TABLE: dict[str, tuple[_Function, _Function, str]] = {
    "gelu": (_gelu, _gelu_slope, "geglu"),
    "qgelu": (_qgelu, _qgelu_slope, "qgeglu"),
    "relu": (torch.relu, lambda x: (x > 0).to(x.dtype), "reglu"),
    "srelu": (_srelu, lambda x: 2 * torch.relu(x), "sreglu"),
    "silu": (_silu, _silu_slope, "swiglu"),
    "sigmoid": (torch.sigmoid, _sigmoid_slope, "glu"),
}


def _plain(apply: _Function, slope: _Function) -> tuple[Any, Any]:
    def forward(x: Tensor) -> Tensor:
        return apply(x.float()).to(x.dtype)

    def backward(grad: Tensor, x: Tensor) -> Tensor:
        return (grad.float() * slope(x.float())).to(grad.dtype)

    return forward, backward


def _gated(apply: _Function, slope: _Function) -> tuple[Any, Any]:
    def forward(x: Tensor) -> Tensor:
        first, gate = x.float().chunk(2, -1)
        return (apply(first) * gate).to(x.dtype)

    def backward(grad: Tensor, x: Tensor) -> Tensor:
        first, gate = x.float().chunk(2, -1)
        wide = grad.float()
        both = wide * gate * slope(first), wide * apply(first)
        return torch.cat(both, -1).to(grad.dtype)

    return forward, backward


def _of_extension(name: str, pair: tuple[Any, Any]) -> dict[str, Any]:
    """The extension's functions of an activation."""
    made = []
    for prefix, function in zip(("", "d"), pair, strict=True):
        function.__name__ = f"{prefix}{name}"
        made.append(kernel(function))
    forward, backward = made

    def apply(x: Tensor, quantizer: Any = None, *_: Any, **__: Any) -> Any:
        return quantizing.given_out(forward(x), quantizer, None)

    def slope(grad: Tensor, x: Tensor, quantizer: Any = None, *_: Any, **__: Any) -> Any:
        return quantizing.given_out(backward(grad.reshape(_of(x, grad)), x), quantizer, None)

    def with_bias(grad: Tensor, x: Tensor, quantizer: Any = None) -> Any:
        dx = backward(grad, x)
        return dx.flatten(0, -2).sum(0), quantizing.given_out(dx, quantizer, None)

    return {name: apply, f"d{name}": slope, f"dbias_d{name}": with_bias}


def _of(x: Tensor, grad: Tensor) -> tuple[int, ...]:
    return (*x.shape[:-1], grad.shape[-1])


for _name, (_apply, _slope, _gate) in _TABLE.items():
    if _name != "sigmoid":
        globals().update(_of_extension(_name, _plain(_apply, _slope)))
    globals().update(_of_extension(_gate, _gated(_apply, _slope)))
