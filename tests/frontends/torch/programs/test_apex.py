"""Programs that cannot do without APEX, which is not installed."""

from __future__ import annotations

import importlib.util

import pytest

pytest.importorskip("torch")
import torch
from torch import nn

from flint import load
from flint.frontends.torch.programs import apex_kernels, kernel_packages
from flint.frontends.torch.programs.package_modules import PACKAGES, module_of
from tests.support.command_line import flint_with_torch as flint

#: As DeepSpeed's Megatron is written, or the same with PyTorch's own.
PROGRAM = """
import sys, torch
from torch import nn
make = nn.Sequential
class Affine(nn.LayerNorm):
    pass
if sys.argv[1] == "apex":
    import importlib, amp_C
    from apex.multi_tensor_apply import multi_tensor_applier
    from apex.normalization import MixedFusedRMSNorm as Norm
    from apex.normalization.fused_layer_norm import FusedLayerNormAffineFunction
    from apex.optimizers import FusedAdam as Adam
    importlib.import_module("fused_layer_norm_cuda")
    class Affine(nn.LayerNorm):
        def forward(self, x):
            args = self.weight, self.bias, self.normalized_shape, self.eps
            return FusedLayerNormAffineFunction.apply(x, *args)
    named = {"adam_w_mode": True}
else:
    Norm, Adam, named = nn.RMSNorm, torch.optim.AdamW, {"fused": True}
model = make(nn.Linear(8, 8), Norm(8, eps=1e-5), Affine(8), nn.Linear(8, 8)).cuda()
optimizer = Adam(model.parameters(), lr=1e-3, **named)
for _ in range(3):
    optimizer.zero_grad()
    model(torch.ones(4, 8, device="cuda")).sum().backward()
    if sys.argv[1] == "apex":
        overflow, grads = torch.cuda.IntTensor([0]), [item.grad for item in model.parameters()]
        multi_tensor_applier(amp_C.multi_tensor_l2norm, overflow, [grads], False)
        multi_tensor_applier(amp_C.multi_tensor_scale, overflow, [grads, grads], 0.5)
    optimizer.step()
"""


def _tensors(*shapes):
    return [torch.randn(shape, generator=torch.Generator().manual_seed(1)) for shape in shapes]


def _graph(folder, which):
    (folder / "train.py").write_text(PROGRAM)
    done = flint("run", "--world", 1, "-o", which, "--", "train.py", which, cwd=folder)
    assert done.returncode == 0, done.stderr
    (program,) = load(folder / which).programs
    return program.graph, done.stderr


@pytest.mark.skipif(importlib.util.find_spec("apex") is not None, reason="APEX is installed")
@pytest.mark.thorough
def test_a_program_that_needs_apex_has_pytorchs_norms_products_and_updates(tmp_path):
    def ops(graph):
        kept = ("mm", "norm", "adam")
        return [node.op for node in graph if any(word in node.op for word in kept)]

    found, words = _graph(tmp_path, "apex")
    own, _ = _graph(tmp_path, "own")
    assert "apex is not installed: its norms and optimizers are recorded as PyTorch's own" in words
    ours = [op for op in ops(found) if "vector_norm" not in op and "foreach_norm" not in op]
    assert ours == ops(own)


def test_apex_comes_with_its_extensions():
    error = ModuleNotFoundError("No module named 'apex'")
    found = kernel_packages.needed(error, ())
    assert found == ("apex", "amp_C", "fused_layer_norm_cuda")
    assert kernel_packages.needed(ImportError("No module named 'apex_models'"), ()) == ()
    for name in found:
        assert all(module_of(name, name).__dict__[item] for item in PACKAGES[name].modules[""])


def test_the_norm_of_a_list_is_that_of_all_its_elements():
    lists, zero = [_tensors((3, 4), (5,))], torch.zeros(1)
    apply, norm = apex_kernels.multi_tensor_applier, apex_kernels.multi_tensor_l2norm
    whole, each = apply(norm, zero, lists, True)
    everything = torch.cat([item.flatten() for item in lists[0]])
    torch.testing.assert_close(whole, everything.norm().reshape(1))
    torch.testing.assert_close(each, torch.stack([item.norm() for item in lists[0]]))


def test_lists_are_scaled_and_added_into_another():
    x, y, out = (_tensors((3, 4), (5,)) for _ in range(3))
    apex_kernels.multi_tensor_scale(1, torch.zeros(1), [x, out], 0.5)
    torch.testing.assert_close(out, [item / 2 for item in x])
    apex_kernels.multi_tensor_axpby(1, torch.zeros(1), [x, y, out], 2.0, 3.0)
    torch.testing.assert_close(out, [2 * a + 3 * b for a, b in zip(x, y, strict=True)])


@pytest.mark.parametrize("decoupled", [True, False])
def test_the_first_update_is_pytorchs(decoupled):
    """Later ones count the step, of which no value is known here."""
    ours, theirs = ([nn.Parameter(item) for item in _tensors((3, 4), (5,))] for _ in range(2))
    named = {"lr": 0.1, "weight_decay": 0.2}
    kind = torch.optim.AdamW if decoupled else torch.optim.Adam
    for optimizer in (
        apex_kernels.FusedAdam(ours, adam_w_mode=decoupled, **named),
        kind(theirs, **named),
    ):
        for item in optimizer.param_groups[0]["params"]:
            item.grad = torch.ones_like(item)
        optimizer.step()
    torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize(
    ("kind", "own"),
    [
        (apex_kernels.MixedFusedLayerNorm, nn.LayerNorm),
        (apex_kernels.MixedFusedRMSNorm, nn.RMSNorm),
    ],
)
def test_mixed_norms_have_the_type_of_their_weights(kind, own):
    (x,) = _tensors((2, 8))
    found = kind(8, eps=1e-5).to(torch.bfloat16)(x)
    assert found.dtype == torch.bfloat16
    expected = own(8, eps=1e-5)(x).to(torch.bfloat16)
    torch.testing.assert_close(found, expected, atol=0.02, rtol=0.02)
