"""Published runs: one per training run, its step in seconds whatever metric it was published as.

The idea: the file has one row per figure, several of the same run (step time, tokens per second,
TFLOP per second).  Rows of one run are put together, and the figure that says most directly how
long a step took is converted:

    step time                   as it is
    tokens/s per device         tokens of a device's batch / figure
    TFLOP/s per device, MFU     FLOPs that the publisher counts for a device's batch / figure

    runs = read_runs(Path("published_steps.csv"))
"""

from __future__ import annotations

import csv
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

#: The columns that identify a run; all its rows have the same values.
_RUN = ("source", "model", "gpus", "gpu_type", "parallelism", "batch_seq", "precision")
_STEP = ("step_time_s", "iteration_time_s")
_TOKENS = ("tokens/s/device", "tokens/s/GPU")
_TERAFLOPS = ("TFLOP/s/device", "TFLOP/s/chip", "model TFLOP/s/GPU")


@dataclass(frozen=True, slots=True)
class Run:
    """One published training run.

    Attributes:
        source, model, gpus, gpu_type, parallelism, batch_seq, precision: as published.
        figures: metric -> value.
        url: where it is published.
    """

    source: str
    model: str
    gpus: str
    gpu_type: str
    parallelism: str
    batch_seq: str
    precision: str
    figures: dict[str, float]
    url: str

    def step_seconds(self, tokens: int, flops: float = 0.0, peak: float = 0.0) -> float | None:
        """How long a step took; None if unknown.

        Args:
            tokens: of a device's batch.
            flops: of a device's batch, as the publisher counts them.
            peak: FLOP/s that the publisher's MFU refers to.
        """
        for metric in _STEP:
            if metric in self.figures:
                return self.figures[metric]
        for metric in _TOKENS:
            if metric in self.figures:
                return tokens / self.figures[metric]
        if not flops:
            return None
        for metric in _TERAFLOPS:
            if metric in self.figures:
                return flops / (self.figures[metric] * 1e12)
        if "MFU_%" in self.figures and peak:
            return flops / (self.figures["MFU_%"] / 100 * peak)
        return None


def read_runs(path: Path) -> list[Run]:
    """The runs of a file, in its order."""
    with path.open(newline="", encoding="utf-8") as file:
        return group(csv.DictReader(file))


def group(rows: Iterable[dict[str, str]]) -> list[Run]:
    """Rows combined by run, without figures that are not numbers ("47-48")."""
    runs: dict[tuple[str, ...], Run] = {}
    for row in rows:
        key = tuple(row[name] for name in _RUN)
        run = runs.setdefault(key, Run(*key, {}, row["url"]))
        try:
            run.figures[row["metric"]] = float(row["value"])
        except ValueError:
            continue
    return list(runs.values())


def maxtext_flops(
    *, layers: int, width: int, heads: int, keys: int, size: int, hidden: int, products: int,
    vocabulary: int, sequence: int, sequences: float,
) -> float:  # fmt: skip
    """FLOPs of a training step of a device, as MaxText counts them for TFLOP/s and MFU.

    Three times those of the forward pass, attention without a mask, no recomputation
    (``calculate_tflops_training_per_device`` in its max_utils.py).

    Args:
        layers: blocks.
        width: of the residual stream.
        heads, keys, size: query heads, key heads, elements of a head.
        hidden: width of the feed-forward network.
        products: its matrix products: 3 gated, 2 not.
        vocabulary: tokens of the vocabulary.
        sequence: tokens of a sequence.
        sequences: of a device's batch.
    """
    block = 2 * width * (products * hidden + (heads + 2 * keys) * size + heads * size)
    scores = 4 * sequence * heads * size
    token = layers * (block + scores) + 2 * width * vocabulary
    return 3.0 * token * sequence * sequences
