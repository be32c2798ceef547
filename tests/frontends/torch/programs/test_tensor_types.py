"""Types of tensors by name, ``torch.cuda.FloatTensor``."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")
import flint.frontends.torch.programs.rank  # noqa: F401  # here, not in every child


def test_a_tensor_has_the_type_that_programs_call_by_name(said):
    """As tensors had types before PyTorch had devices: a GPU gives these answers."""
    found = said("""
        x = torch.ones(2, 3, device="cuda")
        half, cuda = x.type("torch.cuda.HalfTensor"), torch.cuda
        kinds = cuda.FloatTensor, cuda.HalfTensor, torch.FloatTensor, cuda.BFloat16Tensor
        asked = [[isinstance(item, kind) for kind in kinds]
                 for item in (x, half, torch.ones(1), torch.nn.Parameter(x.bfloat16()))]
        made = cuda.LongTensor([1, 7]), cuda.FloatTensor(3, 4), cuda.IntTensor(x.size())
        moved = torch.ones(2).type(cuda.DoubleTensor), x.type(half.type())
        torch.set_default_tensor_type(cuda.HalfTensor)
        default = torch.ones(2)
        torch.set_default_tensor_type(torch.FloatTensor)
        say(asked, made[0][1].item(), [[*item.shape, str(item.dtype)] for item in made],
            [[item.is_cuda, str(item.dtype)] for item in (*moved, default, torch.ones(2))])
    """)
    assert found == [
        [[True, False, False, False], [False, True, False, False], [False, False, True, False],
         [False, False, False, True]],
        7, [[2, "torch.int64"], [3, 4, "torch.float32"], [2, 3, "torch.int32"]],
        [[True, "torch.float64"], [True, "torch.float16"], [True, "torch.float16"],
         [False, "torch.float32"]],
    ]  # fmt: skip


def test_the_class_of_tensors_makes_those_of_the_default_type(said):
    """As NeRF's: ``torch.Tensor([1e10])`` is put beside tensors of the GPU."""
    found = said("""
        class Own(torch.Tensor):
            pass
        torch.set_default_tensor_type("torch.cuda.FloatTensor")
        made = [torch.Tensor([1e10]), torch.Tensor(4, 5), torch.Tensor(torch.ones(3)), Own(2, 3),
                torch.FloatTensor([1.0])]
        torch.set_default_tensor_type("torch.FloatTensor")
        made += [torch.Tensor([1.0, 2.0]), torch.Tensor()]
        say([[item.device.type, *item.shape] for item in made], type(made[3]) == Own)
    """)
    on_device = [["cuda", 1], ["cuda", 4, 5], ["cuda", 3], ["cuda", 2, 3]]
    assert found == [[*on_device, ["cpu", 1], ["cpu", 2], ["cpu", 0]], True]
