"""Recipes of the blind test: what is known of a run before its figure is looked up.

The idea: a row says how a run was configured and what its figure counts, never the figure.  A
simulated step is told in the row's own metric, so that nothing has to be converted when the figures
are opened:

    step_s                     seconds
    tokens_per_s_per_device    tokens of the whole batch / devices / seconds
    samples_per_s              sequences of the whole batch / seconds
    tflops_per_device, mfu     FLOPs as the publisher counts them / devices / seconds

    runs = read_recipes(HERE / "recipes.csv")
    runs["ao-h100-8b-bf16"].figure(seconds=1.2)
"""

from __future__ import annotations

import csv
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from published import maxtext_flops

HERE = Path(__file__).parent
#: Tokens of a sequence from which a run counts as one of long context.
LONG = 32768
#: FLOP/s that a published MFU refers to.
PEAKS = {"TPU v6e": 918e12}
#: Metrics that are larger the faster a run is.
RATES = ("tokens_per_s_per_device", "samples_per_s", "tflops_per_device", "mfu")
_TILES = re.compile(r"[Vv]ocabulary loss in (\d+) tiles")
_GRAPHED = re.compile("(?<![Nn]o )CUDA graph")


@dataclass(frozen=True, slots=True)
class Recipe:
    """One row.

    Attributes:
        id: names it, here and where its figure is.
        model, sizes: which model.
        accelerator, devices, parallelism: what it ran on, and how it was split.
        batch: sequences of a step; 0: not published.
        sequence: tokens of one.
        microbatches, compute, remat, attention, framework: as the row says.
        compiled: by torch.compile or XLA.
        metric: what its figure counts.
        url: where it is published.
        memory: its peak of memory was published, too.
        date: of its source, as far as it is known: "2025-06", "2025-06-11".
        graphed: CUDA graphs launch its step, or its layers, as the row says.
        tiles: parts of a batch whose loss is computed one after another; 0: at once.
        notes: what else the row says.
    """

    id: str
    model: str
    sizes: dict[str, Any]
    accelerator: str
    devices: int
    parallelism: dict[str, Any]
    batch: int
    sequence: int
    microbatches: str
    compute: str
    remat: str
    attention: str
    framework: str
    compiled: bool
    metric: str
    url: str
    memory: bool
    date: str = ""
    graphed: bool = False
    tiles: int = 0
    notes: str = ""

    @property
    def kind(self) -> str:
        """Vision, long context, MoE or dense, and whether products are narrower than 16 bits."""
        what = "dense"
        if self.sizes.get("experts"):
            what = "MoE"
        if self.sequence >= LONG:
            what = "long context"
        if {"patch", "image_tokens"} & self.sizes.keys():
            what = "vision"
        return what if self.compute.startswith(("bf16", "fp16", "autocast")) else f"{what}, narrow"

    @property
    def narrow_attention(self) -> bool:
        """Whether attention is in f8, too."""
        return "fp8" in self.attention

    @property
    def program(self) -> str:
        """What ranges tell programs apart by (``flint.cost.uncertainty``)."""
        narrow = "narrow" if self.kind.endswith("narrow") else "dense"
        return "mixture" if self.kind.startswith("MoE") else narrow

    def figure(self, seconds: float, batch: int = 0) -> float:
        """A step of so many seconds in the row's metric.

        Args:
            seconds: of a step.
            batch: sequences of it, where the row does not say.
        """
        return amount(self, batch or self.batch) / seconds if self.metric in RATES else seconds


def amount(recipe: Recipe, batch: int) -> float:
    """What a rate counts of a step of so many sequences."""
    tokens = batch * recipe.sequence
    if recipe.metric == "tokens_per_s_per_device":
        return tokens / recipe.devices
    if recipe.metric == "samples_per_s":
        return batch
    if recipe.metric == "mfu":
        return _maxtext(recipe, batch) / recipe.devices / PEAKS[recipe.accelerator]
    return _nemo(recipe, tokens) / recipe.devices / 1e12


def _nemo(recipe: Recipe, tokens: int) -> float:
    """FLOPs of a dense model as ``nemo/utils/flops_formulas.py`` counts them: all scores."""
    sizes, width = recipe.sizes, recipe.sizes["hidden"]
    keys = sizes["kv_heads"] / sizes["heads"]
    block = 12 + 12 * keys + 18 * sizes["ffn"] / width + 12 * recipe.sequence / width
    per_token = sizes["layers"] * width**2 * block + 6 * sizes["vocabulary"] * width
    return float(tokens * per_token)


def _maxtext(recipe: Recipe, batch: int) -> float:
    """FLOPs as MaxText counts them: of a mixture those of the experts that a token has."""
    sizes = recipe.sizes
    hidden = sizes["expert_ffn"] * sizes["top_k"] if sizes.get("experts") else sizes["ffn"]
    return maxtext_flops(
        layers=sizes["layers"], width=sizes["hidden"], heads=sizes["heads"],
        keys=sizes["kv_heads"], size=sizes["head_dim"],
        hidden=hidden, products=3, vocabulary=sizes["vocabulary"],
        sequence=recipe.sequence, sequences=batch,
    )  # fmt: skip


def read_recipes(path: Path = HERE / "recipes.csv") -> dict[str, Recipe]:
    """The rows of a file by their ids, in its order."""
    with path.open(newline="", encoding="utf-8") as file:
        return {row["id"]: _recipe(row) for row in csv.DictReader(file)}


def _recipe(row: dict[str, str]) -> Recipe:
    tiles = _TILES.search(row.get("notes", ""))
    return Recipe(
        id=row["id"],
        model=row["model"],
        sizes=json.loads(row["sizes"]),
        accelerator=row["accelerator"],
        devices=int(row["devices"]),
        parallelism=json.loads(row["parallelism"]),
        batch=int(row["global_batch"] or 0),
        sequence=int(row["sequence"]),
        microbatches=row["microbatches"],
        compute=row["compute_type"],
        remat=row["remat"],
        attention=row["attention"],
        framework=row["framework"],
        compiled=row["compiled"].startswith("yes"),
        metric=row["metric_kind"],
        url=row["url"],
        memory=row.get("published_memory_known", "").startswith("yes"),
        date=row.get("source_date", ""),
        graphed=bool(_GRAPHED.search(row["compiled"] + row.get("notes", ""))),
        tiles=int(tiles[1]) if tiles else 0,
        notes=row.get("notes", ""),
    )
