"""Diffusion transformers of the blind test: as many parameters as the published run's log says."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks" / "accuracy"))
sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks" / "accuracy" / "blind"))

import dit  # noqa: E402
from recipes import read_recipes  # noqa: E402

#: fast-DiT's ``performance/A100/train.out``: "DiT Parameters: 675,129,632", of which 256 places of
#: 1,152 elements are never trained.
LOGGED, PLACES = 675_129_632, 256 * 1152


def test_parameters_are_as_many_as_logged() -> None:
    sizes = read_recipes()["a100-fastdit-xl2"].sizes
    with torch.device("meta"):
        model = dit.Transformer(
            sizes["layers"], sizes["hidden"], sizes["heads"], sizes["ffn"], 4, sizes["patch"]
        )
    assert sum(item.numel() for item in model.parameters()) == LOGGED - PLACES
    assert sizes["tokens"] * sizes["hidden"] == PLACES


def test_autocast_keeps_the_residual_stream_in_single_precision() -> None:
    block, x = dit.Block(32, 4, 64), torch.randn(2, 6, 32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert block(x, torch.randn(2, 32)).dtype == torch.float32
        assert block.attention(x).dtype == torch.bfloat16
