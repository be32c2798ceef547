"""xFormers whose extension is not loaded: its choice of kernels is its own, they are PyTorch's.

The package here is one of the same form: its own Python calls operators of kernels.
"""

from __future__ import annotations

import importlib.util

import pytest

pytest.importorskip("torch")
from flint import load
from flint.graph.work import Unit
from tests.support.command_line import flint_with_torch as flint

EXTENSION = "_built_with_cuda = False\n"

#: Operators that would be found if the extension were there.
KERNELS = """
class FwOp:
    OPERATOR = None
class BwOp:
    OPERATOR = None
"""

#: Attention, dense or of two packed sequences; by the package or by PyTorch.
PROGRAM = """
import sys, torch
kind, how = sys.argv[1:]
dtype = torch.bfloat16 if kind == "flash" else torch.float32
layer = torch.nn.Linear(64, 192, device="cuda", dtype=dtype)
optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
ends = torch.tensor([0, 32, 64], dtype=torch.int32, device="cuda") if how == "packed" else None
longest = (32, 32)
if how != "own":
    from xformers import _cpp_lib
    assert _cpp_lib._built_with_cuda
    import importlib
    ops = importlib.import_module(f"xformers.ops.fmha.{kind}")
class Attend(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v):
        if kind == "flash":
            out, *rest = ops.FwOp.OPERATOR(q, k, v, ends, ends, None, *longest, 0.0, 0.25, True,
                                           window_left=-1, window_right=0, return_softmax=False,
                                           block_tables=None)
        else:
            out, *rest = ops.FwOp.OPERATOR(
                query=q, key=k, value=v, bias=None, cu_seqlens_q=ends, cu_seqlens_k=ends,
                max_seqlen_q=32, max_seqlen_k=32, dropout_p=0.0, compute_log_sumexp=True,
                custom_mask_type=1, scale=None, seqlen_k=None, window_size=None)
        ctx.save_for_backward(q, k, v, out, *rest[:2])
        ctx.offset = rest[2] if kind == "cutlass" else None
        return out
    @staticmethod
    def backward(ctx, grad):
        q, k, v, out, level, seed = ctx.saved_tensors
        if kind == "flash":
            return tuple(ops.BwOp.OPERATOR(
                False, grad, q, k, v, out, level, ends, ends, *longest, 0.0, 0.25, True,
                window_left=-1, window_right=0, rng_state=None))
        *found, bias = ops.BwOp.OPERATOR(
            grad, q, k, v, bias=None, bias_requires_grad=False, cu_seqlens_q=ends,
            cu_seqlens_k=ends, max_seqlen_q=32, max_seqlen_k=32, logsumexp=level, out=out,
            dropout_p=0.0, philox_seed=seed, philox_offset=ctx.offset, custom_mask_type=1,
            scale=None, num_splits_key=None)
        assert bias is None or not bias.numel()
        return tuple(found)
for _ in range(3):
    x = torch.ones(2, 32, 64, device="cuda", dtype=dtype)
    q, k, v = layer(x).view(2, 32, 3, 4, 16).unbind(2)
    if how == "own":
        attend = torch.nn.functional.scaled_dot_product_attention
        out = attend(*(item.transpose(1, 2) for item in (q, k, v)), is_causal=True)
    else:
        if how == "packed":
            flat = (1, 64, 4, 16) if kind == "cutlass" else (64, 4, 16)
            q, k, v = (item.reshape(flat) for item in (q, k, v))
        out = Attend.apply(q, k, v)
    out.sum().backward()
    optimizer.step()
"""

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("xformers") is not None, reason="xformers is installed"
)


def products(folder, *arguments):
    """FLOPs of matrix products of a step, and what was said."""
    (folder / "train.py").write_text(PROGRAM)
    package = folder / "xformers"
    kernels = package / "ops/fmha"
    kernels.mkdir(parents=True, exist_ok=True)
    for place in (package, kernels.parent, kernels):
        (place / "__init__.py").touch()
    (package / "_cpp_lib.py").write_text(EXTENSION)
    for name in ("flash", "cutlass"):
        (kernels / f"{name}.py").write_text(KERNELS)
    done = flint("run", "--world", 1, "-o", "out", "--", "train.py", *arguments, cwd=folder)
    assert done.returncode == 0, done.stderr
    (program,) = load(folder / "out").programs
    work = (item for node in program.graph for item in node.work.items)
    return sum(item.flops for item in work if item.unit is Unit.MATMUL), done.stderr


#: Of the layer, forward and for its weight: 64 rows; of attention, forward and backward: two and
#: five products of pairs that see each other, of 2 sequences, 4 heads and heads' size 16.
LAYER, PAIRS = 2 * (2 * 64 * 64 * 192), 2 * 4 * (32 * 33 // 2)
BY_HAND = LAYER + (2 + 5) * 2 * 16 * PAIRS


def test_its_attention_has_the_products_of_pairs_that_see_each_other(tmp_path):
    flops, said = products(tmp_path, "flash", "dense")
    assert flops == BY_HAND
    assert "xFormers' extension is not loaded" in said


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["flash", "cutlass"])
def test_its_attention_is_pytorchs(tmp_path, kind):
    """Two packed sequences are as two of a batch."""
    (own, _), (dense, _), (packed, _) = (
        products(tmp_path, kind, how) for how in ("own", "dense", "packed")
    )
    assert own == dense == packed
