"""Models as Hugging Face's Transformers spells them out: the same results, and its operations."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")

from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from flint.models.torch.huggingface import WrittenNorm, doubled_table, rotated_halves  # noqa: E402
from flint.models.torch.layers import rotary_table, rotated  # noqa: E402
from flint.models.torch.llama3 import TINY, training  # noqa: E402
from flint.models.torch.llama3_model import Llama  # noqa: E402
from tests.models.torch.one_rank import attentions, graph_of, kernels  # noqa: E402

#: Operations of Transformers 4.57.1's ``LlamaRMSNorm.forward``, line by line: to(float32); pow,
#: mean; add, rsqrt, mul; to(its input's type), mul by the weight.
NORM = {"_to_copy": 2, "pow": 1, "mean": 1, "add": 1, "rsqrt": 1, "mul": 2}
#: Of ``apply_rotary_pos_emb``, for one of queries and keys: q * cos + cat((-x2, x1)) * sin.
ROTATION = {"mul": 2, "neg": 1, "cat": 1, "add": 1}
#: Changes of shape, which run no kernel.
VIEWS = {"view", "slice", "split", "unsqueeze", "expand", "detach", "alias", "transpose"}


class Counted(TorchDispatchMode):
    """Counts the operations that PyTorch runs."""

    def __init__(self):
        super().__init__()
        self.found = Counter()

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        self.found[op.name().removeprefix("aten::").split(".")[0]] += 1
        return op(*args, **(kwargs or {}))


def ran(function, *args):
    with Counted() as mode:
        function(*args)
    return {name: count for name, count in mode.found.items() if name not in VIEWS}


def test_the_norm_is_pytorchs_by_the_operations_of_transformers():
    norm, plain = WrittenNorm(8), torch.nn.RMSNorm(8, eps=1e-6)
    x = torch.randn(2, 3, 8)
    torch.testing.assert_close(norm(x), plain(x))
    assert ran(norm.bfloat16(), x.bfloat16()) == NORM


def test_heads_are_rotated_by_the_operations_of_transformers():
    table, x = rotary_table(5, 8, 10000.0), torch.randn(2, 5, 3, 8)
    doubled = doubled_table(table, x.dtype)
    torch.testing.assert_close(rotated_halves(x, doubled), rotated(x, table))
    assert ran(rotated_halves, x.bfloat16(), doubled.bfloat16()) == ROTATION


@pytest.mark.parametrize("style", ["huggingface", "huggingface, masked"])
def test_the_model_is_the_same(style):
    torch.manual_seed(0)
    one, other = Llama(TINY), Llama(replace(TINY, style=style))
    other.load_state_dict(one.state_dict())
    for model in (one, other):
        for module in model.modules():
            if isinstance(module, torch.nn.RMSNorm):
                module.eps = 1e-6
    tokens = torch.randint(TINY.vocabulary, (2, TINY.sequence))
    torch.testing.assert_close(one(tokens), other(tokens))


@pytest.mark.thorough
def test_attention_that_reads_a_mask_repeats_keys_and_values():
    plain, masked = (
        graph_of(training(replace(TINY, style=style), mesh=(1,), axes=("dp",)))
        for style in ("huggingface", "huggingface, masked")
    )
    assert attentions(masked) == attentions(plain) == (TINY.layers, TINY.layers)
    # `repeat_kv` of `sdpa_attention.py`: no fused kernel takes both a mask and groups of queries.
    # Their gradients are summed over these, and lie as heads first: `view`'s backward copies them.
    more = kernels(masked) - kernels(plain)
    assert more["sum"] == 2 * TINY.layers
    assert more["clone"] == 4 * TINY.layers
