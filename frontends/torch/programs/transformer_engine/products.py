"""Products of Transformer Engine: cuBLAS's, plain and of groups.

The idea: arguments come by name from the package's own wrappers.  In rows, a product is
``op(B) @ op(A)``: layout TN is ``B @ A.T`` (forward), NN ``B @ A`` (gradient of the input), NT
``B.T @ A`` (gradient of the weight).  Biases, activations and the addition to a buffer of gradients
are epilogues: one kernel.

    general_gemm({"A": weight, "B": x, "layout": "TN", "out": None, ...})
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn import functional

from flint.frontends.torch.programs.transformer_engine import quantizing, scaled_products
from flint.frontends.torch.programs.transformer_engine.kernels import kernel


@dataclass(frozen=True, slots=True)
class _Product:
    """A product, as its wrapper is asked for it.

    Attributes:
        left, right: ``A`` and ``B``: plain or quantised tensors.
        layout: "TN", "NN" or "NT".
        dtype: of the result; None: that of the operands.
        out: where the result goes, or None.
        accumulate: it is added to what is there.
        bias: added to rows; with ``grad``, its gradient is wanted.
        gelu: the result goes through GELU; with ``grad``, through its derivative at ``gelu_in``.
    """

    left: Any
    right: Any
    layout: str
    dtype: torch.dtype | None
    out: Tensor | None
    accumulate: bool
    bias: Tensor | None
    grad: bool
    gelu: bool
    gelu_in: Tensor | None


def general_gemm(given: Mapping[str, Any]) -> tuple[Any, Any, Any, Any]:
    """A product, the gradient of its bias, what GELU was applied to, and what userbuffers made.

    Args:
        given: the wrapper's arguments by name.
    """
    product = _Product(
        given["A"], given["B"], given["layout"], given["out_dtype"], given["out"],
        given["accumulate"], given["bias"], given["grad"], given["gelu"], given["gelu_in"],
    )  # fmt: skip
    made, bias_grad, gelu_in = _computed(product)
    return quantizing.given_out(made, given["quantization_params"], None), bias_grad, gelu_in, None


def general_grouped_gemm(given: Mapping[str, Any]) -> tuple[Any, Any, Any]:
    """Products of several pairs: the package launches one kernel of cuBLAS for each."""
    outs: Any = given["out"]
    if given.get("single_output"):
        outs = outs[0].split(given["m_splits"])
    biases = given["bias"] if given["use_bias"] else [None] * len(given["A"])
    found = [
        _computed(
            _Product(
                left, right, given["layout"], None, out,
                given["accumulate"], bias, given["grad"], given["gelu"], None,
            )
        )
        for left, right, out, bias in zip(given["A"], given["B"], outs, biases, strict=True)
        if out.numel()
    ]  # fmt: skip
    gradients = [item[1] for item in found] if given["grad"] and given["use_bias"] else biases
    return given["out"], gradients, [item[2] for item in found]


def _computed(product: _Product) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """The product, the gradient of the bias, what GELU was applied to."""
    if quantizing.is_quantised(product.left) or quantizing.is_quantised(product.right):
        made = scaled_products.computed(
            product.left, product.right, product.layout, product.dtype,
            None if product.grad else product.bias, product.out, product.accumulate,
        )  # fmt: skip
        return _after(product, made)
    left, right = product.left, product.right
    rows, columns = right.reshape(-1, right.shape[-1]), left.reshape(-1, left.shape[-1])
    first = rows.t() if product.layout[1] == "T" else rows
    second = columns.t() if product.layout[0] == "T" else columns
    made, bias_grad, pre = _plain(product, first, second, rows)
    if product.layout[1] != "T" and made is not product.out:
        made = made.view(*right.shape[:-1], made.shape[-1])
    return made, bias_grad, pre


def _plain(
    product: _Product, first: Tensor, second: Tensor, rows: Tensor
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    bias, out, grad = product.bias, product.out, product.grad
    add_product: Any = torch.addmm
    multiply: Any = torch.mm
    dtype = product.dtype or (first.dtype if out is None else out.dtype)
    wanted = {} if dtype == first.dtype else {"out_dtype": dtype}
    into = {} if out is None else {"out": out.view(first.shape[0], second.shape[1])}
    if product.gelu_in is not None and product.gelu and grad:
        return _product_with_gelu_gradient(first, second, product.gelu_in), None, None
    if product.gelu:
        made, pre = _product_with_gelu(first, second, bias)
        return made, None, pre
    if out is not None and product.accumulate:
        add_product(into["out"], first, second, **wanted, **into)
        return out, rows.sum(0) if bias is not None else None, None
    if grad and bias is not None and out is None:
        made, bias_grad = _product_with_bias_gradient(first, second, rows, dtype)
        return made, bias_grad, None
    if bias is not None and not grad:
        made = add_product(bias.to(dtype), first, second, **wanted, **into)
    else:
        made = multiply(first, second, **wanted, **into)
    return (made if out is None else out), rows.sum(0) if grad and bias is not None else None, None


def _after(product: _Product, made: Tensor) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """What follows a product of quantised tensors, which has no such epilogues."""
    if product.gelu and product.grad:
        return torch.ops.aten.gelu_backward(made, product.gelu_in, approximate="tanh"), None, None
    if product.gelu:
        return functional.gelu(made, approximate="tanh"), None, made
    return made, None, None


@kernel
def _product_with_gelu(first: Tensor, second: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor]:
    pre = first @ second if bias is None else torch.addmm(bias, first, second)
    return functional.gelu(pre, approximate="tanh"), pre.clone()


@kernel
def _product_with_gelu_gradient(first: Tensor, second: Tensor, gelu_in: Tensor) -> Tensor:
    made, backward = first @ second, torch.ops.aten.gelu_backward
    return cast("Tensor", backward(made, gelu_in.reshape(made.shape), approximate="tanh"))


@kernel
def _product_with_bias_gradient(
    first: Tensor, second: Tensor, rows: Tensor, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    return (first @ second).to(dtype), rows.sum(0)
