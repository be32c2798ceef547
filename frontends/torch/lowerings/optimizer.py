"""Fused optimiser kernels: the update rules of torch's documentation, list by list.

With scaled losses (``GradScaler``) gradients are divided by the scale, in a separate step.
"""

from __future__ import annotations

from typing import Any

from flint.frontends.torch.lowerings import operations as op
from flint.frontends.torch.lowerings.calls import Call, Operand, Unsupported, value_at
from flint.frontends.torch.lowerings.operations import Value
from flint.frontends.torch.lowerings.table import lowers
from flint.stablehlo.read.bindings import stablehlo as hlo


def _targets(call: Call, lists: list[list[Value | None]]) -> list[Value | None]:
    """Values list by list in the schema's order; gradients stay as they are unless scaled."""
    values = [value for new in lists for value in new]
    if len(values) == len(call.targets):
        return values
    without = [value for at, new in enumerate(lists) if at != 1 for value in new]
    if len(without) == len(call.targets):
        return without
    raise Unsupported(f"{call.name}: {len(call.targets)} written tensors")


def _gradient(grad: Operand, spec: Any, dtype: str, scale: Any) -> Value:
    value = value_at(grad, spec.shape, dtype)
    return value if scale is None else op.divide(value, value_at(scale, spec.shape, dtype))


def _unless(found_inf: Any, before: Operand, value: Value) -> Value:
    """A new value; the previous one if ``found_inf`` states that a gradient was not finite."""
    if found_inf is None:
        return value
    flag = op.reshape(found_inf.value, ())
    wrong = op.broadcast(op.compare("NE", flag, op.like(0, flag)), before.shape)
    return op.select(wrong, value_at(before, before.shape, op.dtype_of(value)), value)


@lowers("aten._fused_adamw", "aten._fused_adam")
def _adam(
    call: Call, self: Any, grads: Any, exp_avgs: Any, exp_avg_sqs: Any, max_exp_avg_sqs: Any,
    state_steps: Any, *, lr: Any, beta1: float, beta2: float, weight_decay: float, eps: float,
    amsgrad: bool, maximize: bool, grad_scale: Any = None, found_inf: Any = None,
) -> list[Value | None]:  # fmt: skip
    """Adam; with decoupled weight decay as AdamW.

    ``state_steps`` are counted up before, by a separate op.
    """
    new: list[list[Any]] = [[], [], [], [], []]
    for at, param in enumerate(self):
        spec = param.spec
        dtype = Call(call.name, (spec,)).compute
        p = value_at(param, spec.shape, dtype)
        raw = _gradient(grads[at], spec, dtype, grad_scale)
        grad = op.negate(raw) if maximize else raw
        m, v = (value_at(item[at], spec.shape, dtype) for item in (exp_avgs, exp_avg_sqs))
        step = value_at(state_steps[at], (), "float32")
        rate = value_at(lr, (), "float32")
        if weight_decay:
            decay = op.multiply(rate, op.like(weight_decay, rate))
            if call.base == "_fused_adamw":
                p = op.subtract(p, op.multiply(value_at(decay, spec.shape, dtype), p))
            else:
                grad = op.add(grad, op.multiply(p, op.like(weight_decay, p)))
        m = op.add(m, op.multiply(op.subtract(grad, m), op.like(1 - beta1, m)))
        v = op.add(
            op.multiply(v, op.like(beta2, v)),
            op.multiply(op.multiply(grad, grad), op.like(1 - beta2, v)),
        )
        one = op.like(1, step)
        first = op.subtract(one, op.power(op.like(beta1, step), step))
        second = op.sqrt(op.subtract(one, op.power(op.like(beta2, step), step)))
        size = value_at(op.divide(rate, first), spec.shape, dtype)
        largest = v
        if amsgrad:
            largest = op.maximum(value_at(max_exp_avg_sqs[at], spec.shape, dtype), v)
            new[4].append(_unless(found_inf, max_exp_avg_sqs[at], largest))
        root = op.divide(op.sqrt(largest), value_at(second, spec.shape, dtype))
        update = op.divide(op.multiply(size, m), op.add(root, op.like(eps, root)))
        given = (param, grads[at], exp_avgs[at], exp_avg_sqs[at])
        made = (op.subtract(p, update), raw, m, v)
        for values, before, value in zip(new[:4], given, made, strict=True):
            values.append(_unless(found_inf, before, value))
    if grad_scale is None:
        new[1] = [None] * len(new[1])
    return _targets(call, new)


def _decayed(
    param: Any, given: Any, dtype: str, weight_decay: float, maximize: bool, grad_scale: Any
) -> tuple[Value, Value, Value]:
    """A parameter, its unchanged gradient, and the gradient of the objective with its decay."""
    spec = param.spec
    p = value_at(param, spec.shape, dtype)
    raw = _gradient(given, spec, dtype, grad_scale)
    grad = op.negate(raw) if maximize else raw
    if weight_decay:
        grad = op.add(grad, op.multiply(p, op.like(weight_decay, p)))
    return p, raw, grad


@lowers("aten._fused_adagrad")
def _adagrad(
    call: Call, self: Any, grads: Any, state_sums: Any, state_steps: Any, *, lr: Any,
    lr_decay: float, weight_decay: float, eps: float, maximize: bool, grad_scale: Any = None,
    found_inf: Any = None,
) -> list[Value | None]:  # fmt: skip
    """``state_steps``, written according to the schema, are counted up before."""
    new: list[list[Any]] = [[], [], [], [None] * len(state_steps)]
    for at, param in enumerate(self):
        spec = param.spec
        dtype = Call(call.name, (spec,)).compute
        p, raw, grad = _decayed(param, grads[at], dtype, weight_decay, maximize, grad_scale)
        new[1].append(None if grad_scale is None else _unless(found_inf, grads[at], raw))
        total = op.add(value_at(state_sums[at], spec.shape, dtype), op.multiply(grad, grad))
        step, rate = value_at(state_steps[at], (), "float32"), value_at(lr, (), "float32")
        one = op.like(1, step)
        decay = op.multiply(op.subtract(step, one), op.like(lr_decay, step))
        size = value_at(op.divide(rate, op.add(one, decay)), spec.shape, dtype)
        root = op.sqrt(total)
        update = op.divide(op.multiply(size, grad), op.add(root, op.like(eps, root)))
        new[0].append(_unless(found_inf, param, op.subtract(p, update)))
        new[2].append(_unless(found_inf, state_sums[at], total))
    return _targets(call, new)


@lowers("aten._fused_sgd")
def _sgd(
    call: Call, self: Any, grads: Any, momentum_buffer_list: Any, *, weight_decay: float,
    momentum: float, lr: Any, dampening: float, nesterov: bool, maximize: bool,
    is_first_step: bool, grad_scale: Any = None, found_inf: Any = None,
) -> list[Value | None]:  # fmt: skip
    new: list[list[Value]] = [[], [], []]
    for at, param in enumerate(self):
        spec = param.spec
        dtype = Call(call.name, (spec,)).compute
        p, raw, grad = _decayed(param, grads[at], dtype, weight_decay, maximize, grad_scale)
        new[1].append(None if grad_scale is None else _unless(found_inf, grads[at], raw))
        if momentum:
            if is_first_step:
                buffer = grad
            else:
                old = value_at(momentum_buffer_list[at], spec.shape, dtype)
                buffer = op.add(
                    op.multiply(old, op.like(momentum, old)),
                    op.multiply(grad, op.like(1 - dampening, grad)),
                )
            new[2].append(_unless(found_inf, momentum_buffer_list[at], buffer))
            ahead = op.add(grad, op.multiply(buffer, op.like(momentum, buffer)))
            grad = ahead if nesterov else buffer
        rate = value_at(lr, spec.shape, dtype)
        new[0].append(_unless(found_inf, param, op.subtract(p, op.multiply(rate, grad))))
    return _targets(call, new)


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
