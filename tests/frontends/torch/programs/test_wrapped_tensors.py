"""Tensors of a program's own kind that are made of others, as those of quantised weights are."""

from __future__ import annotations

import textwrap

import pytest

pytest.importorskip("torch")

from tests.programs.comparing import captured

#: A kind as Transformer Engine's: it holds bytes, and hands some ops to what it holds by the method
#: through which PyTorch hands them to it.
PROGRAM = """
    import torch
    class Held(torch.Tensor):
        @staticmethod
        def __new__(cls, data):
            make = torch.Tensor._make_wrapper_subclass
            made = make(cls, data.shape, dtype=torch.bfloat16, device=data.device)
            made.data_held = data
            return made
        @classmethod
        def __torch_dispatch__(cls, func, types, args, kwargs=None):
            held = args[0].data_held
            return Held(held.__torch_dispatch__(func, types, [held, *args[1:]], kwargs or {}))
        def untyped_storage(self):
            return torch.UntypedStorage(0, device=self.device)
    held = Held(torch.zeros(8, 4, dtype=torch.uint8, device="cuda"))
    part = held[2:5]
    assert part.data_held.shape == (3, 4) and part.data_held.dtype == torch.uint8
    assert held.t().data_held.shape == (4, 8)
    assert held.untyped_storage().nbytes() == 0
    assert torch.UntypedStorage(5, device="cuda").nbytes() == 5
    model = torch.nn.Linear(4, 4, device="cuda")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        model(part.data_held.float()).sum().backward()
        optimizer.step()
"""


def test_what_a_tensor_holds_takes_its_ops(tmp_path):
    (tmp_path / "train.py").write_text(textwrap.dedent(PROGRAM))
    # A layer of 4 x 4, forward and for its weights: 2 x 2 FLOPs x 3 rows x 16.
    assert [item["flops"] for item in captured(tmp_path, 1, "train.py")] == [2 * 2 * 3 * 16]
