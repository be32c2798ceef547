"""Code that a step compiles, but that cannot be compiled: it is told with its line."""

from __future__ import annotations

import types

import torch
from torch import nn

from tests.frontends.torch.in_child import record_in_child


def call(function, *args):
    return function(*args)


def recorded(function):
    def setup(mesh):
        return torch.compile(function), torch.empty(64, 256, device="cuda")

    return record_in_child(call, setup, (1,), ("dp",), compile_for="h100-sxm")


def as_packages_ask(x):
    """transformers' ``is_fake_tensor``, in the model's forward."""
    if isinstance(x, torch._subclasses.FakeTensor):
        return x
    return nn.functional.gelu(x).exp()


def test_code_that_asks_whether_it_is_traced_is_compiled_as_a_whole():
    """One kernel for both functions, as of tensors with values."""
    found = recorded(as_packages_ask)
    assert not found.warnings
    kernels = [op.name for op in found.ops if "empty" not in op.name]
    assert kernels == ["inductor_kernel.triton_poi_fused_exp_gelu_0.default"]


#: A module whose attribute is another class each time it is read, so that a guard on it fails.
odd = types.ModuleType("odd")
odd.__getattr__ = lambda name: type(name, (), {})


def asks_for_another_object(x):
    return x if isinstance(x, odd.Kind) else x.exp()


def test_code_whose_guard_fails_at_once_is_told_with_its_line():
    found = recorded(asks_for_another_object)
    told = [text for text in found.warnings if "recorded as eager code in part" in text]
    line = asks_for_another_object.__code__.co_firstlineno
    assert len(told) == 1 and f"test_left_eager.py:{line}: " in told[0]
    assert [op.name for op in found.ops] == ["aten.exp.default"]
