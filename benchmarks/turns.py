"""Did anything get slower?  Every row's command with two checkouts, by turns, on the same inputs.

The idea: on a machine that does other work, too, wall time says little.  What is compared is the
processor time of a command with all its children, in pairs: what else runs then meets both.  The
share is the median of the pairs' shares.  Each checkout needs its own ``.venv``.

    python benchmarks/turns.py ../before --pairs 5 --folder /var/tmp > turns.json
    python benchmarks/turns.py ../before --only simulate
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import kineto_trace  # noqa: E402  # the folder is no package: its scripts are run as files
from cases import ROOT, script  # noqa: E402
from measure import Measured, measure  # noqa: E402
from post_execution import for_both  # noqa: E402

THREE = "replica,data,model"
JAX, TORCH = "models/jax/llama3.py", "models/torch/llama3.py"
SAVED_8B = "models/saved/llama3_8b_scan_fsdp64_tp8.mlirbc"
SAVED_405B = "tests/data/stablehlo/llama3_405b_scan_fsdp128_tp16.mlirbc"
#: What makes an input, by the input's name: script and its options.
MADE: dict[str, tuple[str, ...]] = {
    "unrolled.text": ("modules.py", "--ops", "110000", "--form", "text"),
    "unrolled.bytecode": ("modules.py", "--ops", "110000", "--form", "bytecode"),
    "unrolled.hlo": ("modules.py", "--ops", "110000", "--form", "hlo"),
    "small.bytecode": ("modules.py", "--layers", "9"),
    "resnet50.mlirbc": ("train_resnet50.py",),
    "ranks64.mlirbc": ("mesh_programs.py", "--ranks", "64"),
    "ranks1024.mlirbc": ("mesh_programs.py", "--ranks", "1024"),
    "ranks1048576.mlirbc": ("mesh_programs.py", "--ranks", "1048576"),
    "trips4096.mlirbc": ("mesh_programs.py", "--layers", "4096"),
    "kineto25.json": ("25",),
    "kineto50.json": ("50",),
    "kineto100.json": ("100",),
    "nodes10000.json": ("10000",),
    "nodes20000.json": ("20000",),
    "nodes40000.json": ("40000",),
}


def _capture(step: str, mesh: str, axes: str | None, *more: str) -> list[str]:
    words = ["capture", f"{{root}}/{step}", "--mesh", mesh, "-o", "{out}", *more]
    return [*words, "--axes", axes] if axes else words


#: What must be there before a row is measured, made once by each checkout.
FOLDERS: dict[str, list[str]] = {
    "traces 8B": ["convert", f"{{root}}/{SAVED_8B}", "-o", "{out}", "--mesh", "64,8"],
    "8B 512": _capture(f"{JAX}:train_8b", "8,8,8", THREE, "--ranks", "0"),
    "8B 16,384": _capture(f"{JAX}:train_8b", "256,8,8", THREE, "--ranks", "0"),
    "8B 131,072": _capture(f"{JAX}:train_8b", "2048,8,8", THREE, "--ranks", "0"),
}
_8B = ["convert", f"{{root}}/{SAVED_8B}", "-o", "{out}", "--mesh", "64,8"]
_405B = ["convert", f"{{root}}/{SAVED_405B}", "-o", "{out}", "--mesh", "128,16"]
_OPTIMIZED = ("--level", "optimized", "--target", "h100", "--ranks", "0-7")
_FEW = ("--ranks", "0-7")


def _convert(name: str, *more: str) -> list[str]:
    return ["convert", f"{{inputs}}/{name}", "-o", "{out}", *more]


#: Row -> ``flint``'s words, or the probe's behind "probe".  ``{root}``: the checkout, ``{inputs}``,
#: ``{out}``: removed before each run, ``{made:X}``: the folder X of FOLDERS.
ROWS: dict[str, list[str]] = {
    "MLIR text to graph, 110,005 ops": ["probe", "graph", "{inputs}/unrolled.text"],
    "MLIR bytecode to graph, 110,005 ops": ["probe", "graph", "{inputs}/unrolled.bytecode"],
    "HLO proto to graph, 85,570 ops": ["probe", "graph", "{inputs}/unrolled.hlo"],
    "MLIR bytecode to kernels, 3,965 ops": ["probe", "kernels", "{inputs}/small.bytecode"],
    "Llama-3 8B module to 512 traces": _8B,
    "Llama-3 8B, `--ranks 0-7`": [*_8B, *_FEW],
    "Llama-3 8B, `flint check`, 512 traces": ["check", "{made:traces 8B}"],
    "Llama-3 405B module to 256 traces": [*_405B, "--ranks", "0-255"],
    "Llama-3 405B, `--ranks 0-7`": [*_405B, *_FEW],
    "ResNet-50, a node per op, 4 ranks": _convert("resnet50.mlirbc", "--granularity", "op"),
    "64 ranks, 8 traces": _convert("ranks64.mlirbc", *_FEW),
    "1,024 ranks, all traces": _convert("ranks1024.mlirbc"),
    "1,048,576 ranks, 8 traces": _convert("ranks1048576.mlirbc", *_FEW),
    "1,048,576 ranks, inspect": ["inspect", "{inputs}/ranks1048576.mlirbc"],
    "4,096 iterations, 8 traces": _convert("trips4096.mlirbc", *_FEW),
    "capture 8B on 64 x 8": _capture(f"{JAX}:train_8b", "64,8", "data,model", *_FEW),
    "capture 405B on 128 x 16": _capture(f"{JAX}:train_405b", "128,16", "data,model", *_FEW),
    "capture 405B on 128 x 8 x 16": _capture(f"{JAX}:train_405b", "128,8,16", THREE, *_FEW),
    "capture 8B on 2048 x 8 x 8": _capture(f"{JAX}:train_8b", "2048,8,8", THREE, *_FEW),
    "optimized level, 8B on 512 H100s": _capture(
        f"{JAX}:train_8b", "64,8", "data,model", *_OPTIMIZED
    ),
    "optimized level, 8B on 32,768 H100s": _capture(
        f"{JAX}:train_8b", "512,8,8", THREE, *_OPTIMIZED
    ),
    "optimized level, 405B on 2,048 H100s": _capture(
        f"{JAX}:train_405b", "128,16", "data,model", *_OPTIMIZED
    ),
    "simulate 8B on 512": ["simulate", "{made:8B 512}"],
    "simulate 8B on 16,384": ["simulate", "{made:8B 16,384}"],
    "simulate 8B on 131,072": ["simulate", "{made:8B 131,072}"],
    "Kineto trace of 26 MB": _convert("kineto25.json"),
    "Kineto trace of 52 MB": _convert("kineto50.json"),
    "Kineto trace of 105 MB": _convert("kineto100.json"),
    "PyTorch execution trace of 10,000 nodes": _convert("nodes10000.json"),
    "PyTorch execution trace of 20,000 nodes": _convert("nodes20000.json"),
    "PyTorch execution trace of 40,000 nodes": _convert("nodes40000.json"),
    "sweep of 8 points, one process": [
        "sweep", f"{{root}}/{JAX}:train_8b", "-o", "{out}", "--axes", THREE, "--jobs", "1",
        *(word for m in (1, 2, 4, 8) for word in ("--mesh", f"1,4,{m}")),
        "--system", "dgx-h100", "--system", "gb200-nvl72",
    ],
    "PyTorch, 8B on 64 x 8": _capture(f"{TORCH}:train_8b", "64,8", None, *_FEW),
}  # fmt: skip


def _input(folder: Path, name: str) -> None:
    """Make one input, in a process of its own: what this one held would count as a command's."""
    path, words = folder / name, MADE[name]
    if words[0].endswith(".py"):
        script(words[0], str(path), *words[1:])
    else:
        subprocess.run([sys.executable, __file__, "--make", str(path), words[0]], check=True)


def _make(path: Path, size: int) -> None:
    if path.name.startswith("kineto"):
        kineto_trace.write(path, size * 10**6, steps=1)
    else:
        path.write_text(json.dumps(for_both(size)))


class Checkout:
    """One of the two, with what it made for itself."""

    def __init__(self, root: Path, folder: Path) -> None:
        self.root, self.folder, self.out = root, folder, folder / "out"
        folder.mkdir()

    def command(self, words: Sequence[str]) -> list[str]:
        """The command line of a row."""
        python = str(self.root / ".venv/bin/python")
        probe = words[0] == "probe"
        begin = [str(self.root / "benchmarks/probes.py")] if probe else ["-m", "flint"]
        return [python, *begin, *(self._filled(word) for word in words[probe:])]

    def run(self, words: Sequence[str]) -> Measured:
        """One run."""
        shutil.rmtree(self.out, ignore_errors=True)
        return measure(self.command(words), runs=1, warm=False)

    def _filled(self, word: str) -> str:
        if word.startswith("{made:"):
            return str(self._made(word[6:-1]))
        inputs = self.folder.parent / "inputs"
        return word.format(root=self.root, out=self.out, inputs=inputs)

    def _made(self, name: str) -> Path:
        path = self.folder / name.replace(" ", "_")
        if not path.exists():
            self.run(FOLDERS[name])
            self.out.rename(path)
        return path


def compared(before: Checkout, now: Checkout, words: Sequence[str], pairs: int) -> dict[str, Any]:
    """A row with both, by turns."""
    found: dict[str, list[Measured]] = {"before": [], "now": []}
    for pair in range(pairs):
        for name, checkout in (("before", before), ("now", now))[:: 1 if pair % 2 else -1]:
            found[name].append(checkout.run(words))
    seconds = {name: [run.user + run.system for run in runs] for name, runs in found.items()}
    shares = [b / a for a, b in zip(*seconds.values(), strict=True)]
    return {
        **{name: median(values) for name, values in seconds.items()},
        "share": median(shares),
        "shares": sorted(shares),
        "peak": {name: max(run.peak for run in runs) for name, runs in found.items()},
        "wall": {name: min(run.wall for run in runs) for name, runs in found.items()},
    }


def main() -> None:
    """Measure, and print a row of Markdown after each; the JSON document follows at the end."""
    parser = argparse.ArgumentParser(description="compare two checkouts, by turns")
    parser.add_argument("before", type=Path, nargs="?", help="the other checkout")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--only", nargs="+", help="rows whose names have one of these in them")
    parser.add_argument("--folder", type=Path, help="where files go [a temporary folder]")
    parser.add_argument("--make", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.make:
        _make(Path(given.make[0]), int(given.make[1]))
        return
    wanted = given.only or [""]
    rows = {name: words for name, words in ROWS.items() if any(text in name for text in wanted)}
    results = {}
    with tempfile.TemporaryDirectory(dir=given.folder) as name:
        folder = Path(name).resolve()
        (folder / "inputs").mkdir()
        before, now = (
            Checkout(root.resolve(), folder / part)
            for part, root in (("before", given.before), ("now", ROOT))
        )
        os.chdir(folder)  # Python looks for the package here first
        for row, words in rows.items():
            needed = [w[9:] for w in words if w.startswith("{inputs}/")]
            for file in needed:
                _input(folder / "inputs", file)
            item = results[row] = compared(before, now, words, given.pairs)
            for file in needed:
                (folder / "inputs" / file).unlink()
            peaks = [f"{item['peak'][part] / 1e6:,.0f} MB" for part in ("before", "now")]
            print(
                f"| {row} | {item['before']:.2f} s | {item['now']:.2f} s | {item['share'] - 1:+.0%}"
                f" | {item['shares'][0] - 1:+.0%} to {item['shares'][-1] - 1:+.0%}"
                f" | {peaks[0]} | {peaks[1]} |",
                file=sys.stderr,
                flush=True,
            )
    print(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
