"""The quick cache of fake tensors gives what PyTorch gives without it.

PyTorch can check each hit of its cache against a dispatch (``cache_crosscheck_enabled``);
a difference in any of a tensor's properties is an error.
"""

from __future__ import annotations

import itertools

import pytest

torch = pytest.importorskip("torch")

from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402

from flint.frontends.torch.shims import fake_cache  # noqa: E402

FORMS = {
    "rows": lambda x: x,
    "columns": lambda x: x.mT,
    "every other": lambda x: x[::2],
    "from the second": lambda x: x[1:],
    "but the last": lambda x: x[:3],
    "expanded": lambda x: x[:1].expand(4, -1),
    "empty": lambda x: x[:0],
}
OPS = {
    "view": lambda x: x.t(),
    "part of a view": lambda x: x.t()[1:],
    "parts": lambda x: x.chunk(2),
    "product": lambda x: x @ x.t(),
    "sum": lambda x: x.sum(0),
    "two results": lambda x: torch.max(x, 1) if x.numel() else x,
    "in place": lambda x: x.clone().add_(1),
    "number": lambda x: x + 1,
    "float": lambda x: x + 1.0,
    "other type": lambda x: x.to(torch.int32),
    "several tensors": lambda x: torch._foreach_add([x, x.clone()], 1.0),
    "resized": lambda x: x.detach().clone().resize_(2, 2) + 1,
    "conjugate": lambda x: torch.complex(x.float(), x.float()).conj() * 2,
}
DTYPES = (torch.float32, torch.bfloat16)


def use(form, op, dtype, grad):
    with torch.set_grad_enabled(grad):
        x = torch.empty(4, 4, dtype=dtype, requires_grad=grad)
        return OPS[op](FORMS[form](x))


def test_known_ops_give_what_a_dispatch_gives():
    """All ops on all forms of all types, in one cache; the second time, all are known."""
    FakeTensorMode.cache_clear()
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    mode.cache_crosscheck_enabled = True
    with fake_cache.quick(), mode:
        for _ in range(2):
            for item in itertools.product(FORMS, OPS, DTYPES, (False, True)):
                use(*item)
    assert FakeTensorMode.cache_info().hits > len(FORMS) * len(OPS) * len(DTYPES) * 2


def test_a_view_that_is_known_shares_the_storage_of_its_tensor():
    with fake_cache.quick(), FakeTensorMode():
        for _ in range(3):
            x = torch.empty(4, 6)
            view = x[1:].t()
            assert view.untyped_storage()._cdata == x.untyped_storage()._cdata
            assert (view.shape, view.stride(), view.storage_offset()) == ((6, 3), (1, 6), 6)


def test_gradients_flow_through_known_ops():
    with fake_cache.quick(), FakeTensorMode():
        for _ in range(3):
            weight = torch.empty(3, 5, requires_grad=True)
            (torch.empty(2, 5) @ weight.t()).relu().sum().backward()
            assert weight.grad.shape == (3, 5)


def test_modes_after_one_another_get_tensors_of_their_own():
    with fake_cache.quick():
        for _ in range(3):
            with FakeTensorMode() as mode:
                assert {(torch.empty(2) + 1).fake_mode for _ in range(3)} == {mode}


def test_an_int_and_a_float_are_different_keys():
    with fake_cache.quick(), FakeTensorMode():
        x = torch.empty(3, dtype=torch.int64)
        found = [(x + 1).dtype, (x + 1.0).dtype, (x + 1).dtype, (x + True).dtype]
    assert found == [torch.int64, torch.float32, torch.int64, torch.int64]


def test_dictionaries_and_lists_of_tensors_are_told_apart():
    with fake_cache.quick(), FakeTensorMode():
        for size in (2, 3, 2, 3):
            x = torch.empty(size, 4)
            assert torch.cat([x, x], dim=0).shape == (2 * size, 4)
            assert torch.cat([x, x], dim=1).shape == (size, 8)
            assert torch.cat([x, x, x]).shape == (3 * size, 4)
