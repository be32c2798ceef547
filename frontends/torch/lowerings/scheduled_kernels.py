"""Kernels scheduled by a compiler (``inductor``): custom calls that state their work.

The idea: the reads, writes and arithmetic of such a kernel are known exactly; its values are not
computed here.  Its loops compute in float32, whatever types they load and store; its products take
the types that they are given.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from flint.frontends.torch.lowerings import dtypes
from flint.frontends.torch.lowerings import operations as build
from flint.frontends.torch.lowerings.calls import Call, Operand
from flint.frontends.torch.lowerings.table import lowers
from flint.frontends.torch.recording.effects import KERNELS
from flint.stablehlo.read.bindings import ir
from flint.stablehlo.read.bindings import stablehlo as hlo

#: Units of the work of loops -> what states it.
_LOOPS = (("vector", "flops"), ("transcendental", "transcendentals"))


@lowers(KERNELS)
def scheduled_kernel(
    call: Call, read: Sequence[Operand], written: Sequence[Operand], work: str
) -> list[Any]:
    """A custom call of what the kernel reads, with what it writes as results."""
    stated = json.loads(work)
    estimate = {
        "flops": stated["flops"],
        "transcendentals": stated["transcendentals"],
        "unit": "vector",
        "dtype": "f32",
        "operand_bytes": stated["read"],
        "result_bytes": stated["written"],
    }
    if "products" in stated:
        loops = [[unit, "f32", stated[key]] for unit, key in _LOOPS if stated[key]]
        products = ["matmul", dtypes.mlir_name(stated["dtype"]), stated["products"]]
        estimate["items"] = [products, *loops]
    made = hlo.CustomCallOp(
        [build.tensor(spec.shape, spec.dtype) for spec in call.targets],
        [item.value for item in read],
        ir.StringAttr.get(f"flint.{call.base}"),
        backend_config=ir.StringAttr.get(
            json.dumps({"custom_call_config": {"cost_estimate": estimate}})
        ),
        has_side_effect=ir.BoolAttr.get(False),
    )
    return list(made.results)
