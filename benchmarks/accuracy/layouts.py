"""Layouts of one model on as many GPUs: predicted before the measured times were looked at.

    python benchmarks/accuracy/layouts.py --predict    # rows that have no seconds yet
    python benchmarks/accuracy/layouts.py                # how many pairs are in the measured order

The idea: Hagemann et al. (2023, "Efficient Parallelization Layouts for Large-Scale Distributed
Model Training") timed Llama 13B, 30B and 65B with tensor and pipeline parallelism of 1 to 16 and
microbatches of 1 to 4 sequences.  A rank's step is bilinear in its layers and its microbatches, so
four small captures of a model without a pipeline give its parts,

    seconds(layers, batches) = start + update * layers + batches * (ends + block * layers),

and 1F1B puts them together (Narayanan et al., 2021): the slowest stage sets the pace, and the first
and last microbatch pass through all stages,

    (batches - 1) * slowest + ends + block * layers + start + update * most layers of a stage

What stages send to each other is not counted.  The predictions (``predicted_s``) gave each stage as
many layers and the last one the head besides.  The authors' framework counts embedding, norm and
head as layers when it divides them, and gives what remains to the first stages
(Aleph-Alpha/scaling, ``pipe_partition_uniform`` and ``get_transformer_layer_specs``): ``since_s``.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import accuracy
from cases_of_runs import Case
from published import Run
from ranking import Mesh, show
from torch_cases import flash_first

from flint.models.torch.layers import Heads
from flint.models.torch.llama3 import training
from flint.models.torch.llama3_model import Config

FILE = Path(__file__).with_name("layouts.csv")
#: Seconds of a step, from the authors' tables (data/seqpara of their repository at e13c2cb), opened
#: after the predictions had been committed.
MEASURED = Path(__file__).with_name("layouts_measured.csv")
CACHE = accuracy.ROOT / "build" / "accuracy"
#: Tokens of a step: 2,048 sequences of 2,048, or 512 of 8,192.
TOKENS = 2048 * 2048
VOCABULARY = 128_000


def _llama(layers: int, width: int, heads: int, hidden: int) -> Config:
    return Config(
        layers=layers, width=width, heads=Heads(queries=heads, keys=heads, size=128),
        hidden=hidden, vocabulary=VOCABULARY, keep=True, fused=True,
    )  # fmt: skip


#: LLaMA: Touvron et al. (2023), table 2.
MODELS: Mapping[str, Config] = {
    "13B": _llama(40, 5120, 40, 13824),
    "30B": _llama(60, 6656, 52, 17920),
    "65B": _llama(80, 8192, 64, 22016),
}


@dataclass(frozen=True, slots=True)
class Layout:
    """A row of ``layouts.csv``.

    Attributes:
        model, devices, sequence: what ran, on how many GPUs, with how many tokens in a sequence.
        tp, pp: ranks of tensor parallelism (with its sequences split) and of the pipeline.
        microbatch: sequences of one.
    """

    model: str
    devices: int
    sequence: int
    tp: int
    pp: int
    microbatch: int

    @property
    def dp(self) -> int:
        """Ranks with sequences of their own."""
        return self.devices // (self.tp * self.pp)


def parts_of(layout: Layout, cache: Path) -> tuple[float, float, float, float]:
    """Start, update, ends and block of the equation above, in seconds; of the ranks of a pipeline
    as ranks with sequences of their own, since a step's end is small beside its microbatches."""
    mesh = {"dp": layout.devices // layout.tp, "tp": layout.tp}
    mesh = {axis: count for axis, count in mesh.items() if count > 1} or {"dp": 1}
    seconds: dict[tuple[int, int], float] = {}
    for layers in (1, 2):
        config = replace(
            MODELS[layout.model], layers=layers, sequence=layout.sequence,
            sequences=layout.microbatch,
        )  # fmt: skip

        def capture(count: int, config: Config = config) -> Any:
            step = training(replace(config, accumulation=count), tuple(mesh.values()), tuple(mesh))
            with flash_first():
                return step.capture(options={"audit": 0})

        case = Case(
            run=Run("layouts", layout.model, "", "", "", "", "", {}, ""), measured=float("nan"),
            system="dgx-a100", accelerator="a100-sxm", key=f"layout-{config}-{mesh}",
            expressed="", note="", capture=capture, batches=1, recorded=(2, 3),
        )  # fmt: skip
        found = accuracy.workloads_of(case, cache)
        results = accuracy.results_of(found, case, accuracy.system_of(case))
        seconds |= {(layers, count): float(item.step_seconds) for count, item in results.items()}
    batch = {layers: seconds[layers, 3] - seconds[layers, 2] for layers in (1, 2)}
    rest = {layers: seconds[layers, 2] - 2 * batch[layers] for layers in (1, 2)}
    block, update = batch[2] - batch[1], rest[2] - rest[1]
    return rest[1] - update, update, batch[1] - block, block


def seconds_of(layout: Layout, parts: tuple[float, float, float, float]) -> float:
    """Seconds of a whole step."""
    start, update, ends, block = parts
    layers = MODELS[layout.model].layers
    batches = TOKENS // (layout.sequence * layout.microbatch * layout.dp)
    blocks = blocks_of_stages(layers, layout.pp)
    slowest = max(block * max(blocks), ends + block * blocks[-1])
    return (batches - 1) * slowest + ends + block * layers + start + update * max(blocks)


def blocks_of_stages(layers: int, stages: int) -> list[int]:
    """Transformer layers in each stage: those and an embedding, a norm and a head are divided into
    stages of as many, the first ones with one more."""
    items = layers + 3
    counts = [items // stages + (stage < items % stages) for stage in range(stages)]
    counts[0] -= 1
    counts[-1] -= 2
    return counts


def read(path: Path = FILE) -> list[dict[str, str]]:
    """Rows of the file."""
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def layout_of(row: Mapping[str, str]) -> Layout:
    """What a row is of."""
    sizes = (int(row[name]) for name in ("devices", "sequence", "tp", "pp", "microbatch"))
    return Layout(row["model"], *sizes)


def groups(column: str = "since_s") -> dict[tuple[str, str, str], list[Mesh]]:
    """Layouts that were simulated and measured, by model, devices and tokens of a sequence."""
    keys = ("model", "devices", "sequence", "tp", "pp", "microbatch")
    measured = {tuple(row[key] for key in keys): float(row["seconds"]) for row in read(MEASURED)}
    found: dict[tuple[str, str, str], list[Mesh]] = defaultdict(list)
    for row in read():
        seconds = measured.get(tuple(row[key] for key in keys))
        if row[column] and seconds:
            name = f"TP {row['tp']} PP {row['pp']} x {row['microbatch']}"
            group = row["model"], row["devices"], row["sequence"]
            found[group].append(Mesh(name, seconds, float(row[column])))
    return dict(found)


def predict(cache: Path, limit: int) -> None:
    """Write the seconds of rows that have none."""
    rows = read()
    for row in rows:
        if row["since_s"] or limit == 0:
            continue
        layout = layout_of(row)
        row["since_s"] = f"{seconds_of(layout, parts_of(layout, cache)):.4g}"
        limit -= 1
        print(layout, row["since_s"], flush=True)
        with FILE.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(row), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)


def main() -> None:
    """Predict, or compare."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--predict", action="store_true")
    parser.add_argument("--limit", type=int, default=-1, help="rows that are predicted at most")
    parser.add_argument("--cache", type=Path, default=CACHE)
    options = parser.parse_args()
    if options.predict:
        predict(options.cache, options.limit)
    else:
        for column in ("predicted_s", "since_s"):
            print(column)
            show(groups(column))


if __name__ == "__main__":
    main()
