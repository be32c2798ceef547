"""Tensors of a program's own kind that are made of others, as those of quantised weights are."""

from __future__ import annotations

import textwrap

import pytest

pytest.importorskip("torch")
import torch

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


#: A kind as MONAI's: results get what their operand holds, and new ones are of this kind, too.
IMAGE = """
class Image(torch.Tensor):
    @staticmethod
    def __new__(kind, data, note=None):
        return torch.as_tensor(data).as_subclass(kind)
    def __init__(self, data, note=None):
        self.note = note
    @classmethod
    def __torch_function__(kind, function, types, args=(), kwargs=None):
        made = super().__torch_function__(function, types, args, kwargs or {})
        if isinstance(made, Image):
            made.__dict__ = {name: held for name, held in args[0].__dict__.items()}
            made.__dict__.update(args[0].__dict__.copy())
        return made
    def new_empty(self, size, **kwargs):
        return Image(self.as_subclass(torch.Tensor).new_empty(size, **kwargs))
image = Image(torch.ones(2, 3), "seen").to("DEVICE")
result = torch.nn.Linear(3, 4).to("DEVICE")(image)
say(type(result).__name__, list(result.shape), result.device.type, result.note, list(vars(image)))
"""


def test_a_kind_that_copies_what_its_objects_hold_does_so(said):
    real = []
    exec(IMAGE.replace("DEVICE", "cpu"), {"torch": torch, "say": lambda *items: real.extend(items)})
    assert real == ["Image", [2, 4], "cpu", "seen", ["note"]]
    assert said(textwrap.indent(IMAGE.replace("DEVICE", "cuda"), "    ")) == [
        "cuda" if item == "cpu" else item for item in real
    ]
