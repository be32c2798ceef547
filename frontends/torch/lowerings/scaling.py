"""Scaled losses (``GradScaler``): gradients divided by the scale, and the scale's own step."""

from __future__ import annotations

from typing import Any

from flint.frontends.torch.lowerings import operations as op
from flint.frontends.torch.lowerings.calls import Call, value_at
from flint.frontends.torch.lowerings.operations import Value
from flint.frontends.torch.lowerings.table import lowers
from flint.stablehlo.read.bindings import stablehlo as hlo


@lowers("aten._amp_foreach_non_finite_check_and_unscale")
def _unscale(call: Call, self: Any, found_inf: Any, inv_scale: Any) -> list[Value]:
    """Every gradient times the inverse scale; 1 in ``found_inf`` if one is not finite."""
    found = op.convert(op.reshape(found_inf.value, ()), "float32")
    values = []
    for item in self:
        gradient = value_at(item, item.shape, "float32")
        wrong = op.convert(op.not_(hlo.is_finite(gradient)), "float32")
        worst = op.reduce(wrong, list(range(item.rank)), "maximum")
        found = op.maximum(found, worst)
        scale = value_at(op.reshape(inv_scale.value, ()), item.shape, "float32")
        values.append(op.multiply(gradient, scale))
    return [*values, op.reshape(found, found_inf.shape)]


@lowers("aten._amp_update_scale")
def _update_scale(
    call: Call, self: Any, growth_tracker: Any, found_inf: Any, scale_growth_factor: float,
    scale_backoff_factor: float, growth_interval: int,
) -> list[Value]:  # fmt: skip
    """Down where a gradient was not finite; up after as many good steps as the interval has.

    It does not grow to infinity (_amp_update_scale_ in PyTorch's AmpKernels.cu).
    """
    scale, steps = self.value, growth_tracker.value
    wrong = op.compare("NE", op.reshape(found_inf.value, self.shape), op.like(0, scale))
    good = op.add(steps, op.like(1, steps))
    full = op.compare("EQ", good, op.like(growth_interval, good))
    grown = op.multiply(scale, op.like(scale_growth_factor, scale))
    grown = op.select(op.and_(full, hlo.is_finite(grown)), grown, scale)
    lower = op.multiply(scale, op.like(scale_backoff_factor, scale))
    reset = op.or_(wrong, full)
    return [op.select(wrong, lower, grown), op.select(reset, op.like(0, steps), good)]
