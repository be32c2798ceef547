"""Blind rows of Hugging Face's Qwen3: blocks that are compiled in vain, and their norms."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (  # noqa: E402
    checkpoint_wrapper,
)

sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks" / "accuracy"))
sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks" / "accuracy" / "blind"))

import predict  # noqa: E402
from recipes import read_recipes  # noqa: E402

from flint.models.torch.llama3 import TINY  # noqa: E402
from flint.models.torch.llama3_model import Llama  # noqa: E402


class Reads(torch.nn.Module):
    """A block whose attention asks for its positions as Transformers 4.56.1's does
    (``_is_packed_sequence`` of ``modeling_flash_attention_utils.py``)."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)

    def forward(self, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        x = self.linear(x) * 2
        increasing = torch.arange(positions.shape[1]) + positions.min()
        packed = x.shape[0] == 1 and (increasing - positions).abs().sum().bool()
        return x + 1 if packed else x * 3


def compiled(block: torch.nn.Module) -> int:
    """How many graphs PyTorch compiles of a block's forward pass."""
    torch._dynamo.reset()
    graphs: list[torch.fx.GraphModule] = []
    block.compile(backend=lambda graph, inputs: graphs.append(graph) or graph)
    block(torch.randn(1, 4, 8, requires_grad=True), torch.arange(4)[None]).sum().backward()
    return len(graphs)


def test_nothing_is_compiled_of_a_checkpointed_block_that_reads_a_value() -> None:
    assert compiled(Reads()) == 2  # in front of what it reads, and behind
    assert compiled(checkpoint_wrapper(Reads(), preserve_rng_state=False)) == 0


def test_its_rows_are_eager_though_they_say_compiled() -> None:
    rows = read_recipes(predict.HERE / "second" / "recipes.csv")
    rows |= read_recipes(predict.HERE / "recipes.csv")
    for name in ("prime-q06b-h100-8k", "rlprime-q4b-h100-64k"):
        found = predict.expressed(rows[name])
        assert rows[name].compiled and "opened" not in found.differs
        assert "no norm" not in found.differs
    found = predict.expressed(rows["rlprime-q30b-h100-16k"])  # prime-rl's own model
    assert "opened" in found.differs


def test_queries_and_keys_have_qwen3s_norms() -> None:
    """``q_norm`` and ``k_norm`` of ``Qwen3Attention``, of a head's size; with weights of one they
    only heads whose mean square is one stay as they are."""
    plain, normed = (
        Llama(replace(TINY, style=style)) for style in ("huggingface", "huggingface, normed")
    )
    missing = normed.load_state_dict(plain.state_dict(), strict=False).missing_keys
    names = Counter(name.rsplit(".", 2)[1] for name in missing)
    assert names == {"q_norm": TINY.layers, "k_norm": TINY.layers}
    attention = next(iter(normed.layers.values())).attention
    assert attention.q_norm.weight.shape == (TINY.heads.size,)
    tokens = torch.randint(TINY.vocabulary, (2, TINY.sequence))
    assert not torch.equal(plain(tokens), normed(tokens))
