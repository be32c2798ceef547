"""APEX's products that add to a buffer of gradients, for programs that import them.

The idea: Megatron's own layers add the gradient of a weight to its buffer in one kernel
(``gradient_accumulation_fusion``), which APEX has.  PyTorch's product with an addition is the same.

    wgrad_gemm_accum_fp32(x, gradient, weight.main_grad)
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def wgrad_gemm_accum_fp32(x: Tensor, grad: Tensor, main_grad: Tensor) -> None:
    """Add ``grad.T @ x`` to ``main_grad`` [out, in]; x [..., in], grad [..., out]."""
    rows, columns = grad.reshape(-1, grad.shape[-1]), x.reshape(-1, x.shape[-1])
    wanted = {} if main_grad.dtype == x.dtype else {"out_dtype": main_grad.dtype}
    add_product: Any = torch.addmm
    add_product(main_grad, rows.t(), columns, **wanted, out=main_grad)


wgrad_gemm_accum_fp16 = wgrad_gemm_accum_fp32
