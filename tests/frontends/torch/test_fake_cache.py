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


#: What a loop does with row, or rows, i of x [12, 8].
OF_ROWS = {
    "row": lambda x, i: x[i],
    "row from the end": lambda x, i: x[-1 - i],
    "row of columns": lambda x, i: x.t()[:, i],
    "rows": lambda x, i: x[i : i + 3],
    "every other row": lambda x, i: x[i :: 2],
    "rows to the end": lambda x, i: x[-i:],
    "no rows": lambda x, i: x[i : i - 1],
    "part of a row": lambda x, i: x[i, 2:7:3],
    "other form": lambda x, i: x[i].view(2, 4).t().unsqueeze(0).expand(3, -1, -1).permute(2, 0, 1),
    "squeezed": lambda x, i: x[i : i + 1].squeeze(0).unfold(0, 2, 1).diagonal(),
    "of the storage": lambda x, i: x[i].as_strided((2,), (3,)),
    "of the storage, at a place": lambda x, i: x[i].as_strided((2,), (3,), 1),
    "other type": lambda x, i: x[i, 2:4].view(torch.int16),
    "complex": lambda x, i: torch.view_as_real(torch.view_as_complex(x[i].view(4, 2))[1:]),
    "copied": lambda x, i: x[i].clone(),
    "computed": lambda x, i: x[i] * 2 + x[i + 1],
    "joined": lambda x, i: torch.cat([x[i], x[i + 2]]),
    "written": lambda x, i: x[i].mul_(2),
}  # fmt: skip


@pytest.mark.parametrize("inference", [False, True])
def test_rows_lie_where_those_of_a_real_tensor_lie(inference):
    def places(x):
        found = {}
        for (name, of_row), i in itertools.product(OF_ROWS.items(), range(9)):
            made = of_row(x, i)
            shares = made.untyped_storage()._cdata == x.untyped_storage()._cdata
            found[name, i] = made.shape, made.stride(), made.storage_offset(), shares
        return found

    with torch.inference_mode(inference):
        real = places(torch.zeros(12, 8))
        with fake_cache.quick(), FakeTensorMode() as mode:
            mode.cache_crosscheck_enabled = True
            assert [places(torch.empty(12, 8)) for _ in range(2)] == [real] * 2


def test_a_loop_over_rows_is_known_after_its_first_round():
    with fake_cache.quick(), FakeTensorMode():
        x = torch.empty(100, 8)
        x[0] = x[1, 2:].sum() * 2
        before = FakeTensorMode.cache_info()
        for i in range(1, 99):
            x[i] = x[i + 1, 2:].sum() * 2
        after = FakeTensorMode.cache_info()
    assert (after.misses, after.bypasses) == (before.misses, before.bypasses)
    assert after.hits > before.hits


def test_a_row_that_is_not_there_is_what_pytorch_makes_of_it_after_those_that_are():
    """Also where that is no error: torch 2.12's ``select`` of a fake tensor does not look."""

    def outcome(op, *numbers):
        try:
            return op(torch.empty(3, 2), *numbers).shape
        except Exception as error:
            return type(error), str(error)

    calls = [
        *((torch.ops.aten.select.int, 0, i) for i in (3, -4)),
        (torch.ops.aten.select.int, 2, 0),
        (torch.ops.aten.slice.Tensor, 2, 0),
        *((torch.Tensor.__getitem__, i) for i in (3, -4)),
    ]
    with FakeTensorMode():
        plain = [outcome(*call) for call in calls]
    with fake_cache.quick(), FakeTensorMode():
        x = torch.empty(3, 2)
        assert [x[i].shape for i in (0, 2, -3)] == [(2,)] * 3
        assert [outcome(*call) for call in calls] == plain
    assert [item[0] for item in plain[2:]] == [IndexError] * 4
