"""Every tiny model run for real, profiled, captured and compared; the result as a page of docs.

    python -m tests.validation.table docs/validation.md

JAX runs on 8 or 16 host CPU devices, PyTorch on 2 or 4 gloo processes.  ``make validate`` runs it.
"""

from __future__ import annotations

import datetime
import importlib
import os
import subprocess
import sys
import tempfile
from importlib import metadata
from pathlib import Path

from flint.errors import FlintError
from flint.validation.validating import totals, validate
from tests.capture.comparing import child_environment
from tests.models.names import MODELS

HERE = Path(__file__).parent
_COLUMNS = ("configuration", "mesh", "trace", "captured", "executed", "matched", "by name", "edges")


def run(*command, environment):
    """Run a child; its last words where it fails."""
    done = subprocess.run(
        [sys.executable, *map(str, command)],
        capture_output=True, text=True, env=environment, timeout=1500, check=False,
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(f"{command[0]}: {done.stderr[-2000:]}")


def jax_runs(folder):
    """(name, capture, traces) of every tiny model of JAX."""
    steps = [f"{name}={':'.join(place)}" for name, place in MODELS.items()]
    run(HERE / "profiling.py", folder, *steps, environment=child_environment())
    for name, (module, attribute) in MODELS.items():
        yield name, getattr(importlib.import_module(module), attribute), {"xplane": [folder / name]}


def torch_runs(folder):
    """(name, capture, traces) of every tiny step of PyTorch."""
    steps = importlib.import_module("tests.validation.torch_steps")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    for name, step in steps.STEPS.items():
        place = folder / f"torch_{name}"
        place.mkdir()
        run(
            HERE / "torch_profiling.py", place, f"tests.validation.torch_steps:{name}",
            environment=environment,
        )  # fmt: skip
        traces = {form: sorted(place.glob(f"{form}_rank*.json")) for form in ("kineto", "et")}
        yield f"torch {name}", step, traces


def row(name, step, traces):
    """Table rows of one configuration, and what explains its differences."""
    workload = step.capture()
    mesh = "x".join(map(str, workload.mesh.shape))
    for form, paths in traces.items():
        try:
            report = validate(workload, paths)
        except FlintError as error:
            yield [name, mesh, form, "", "", "", "", f"refused: {error}"], {}, False
            continue
        found = totals(report)
        counts = [found[key] for key in ("captured", "executed", "matched", "by_name")]
        edges = f"{report.edges - report.contradicted:,} of {report.edges:,}"
        cells = [name, mesh, form, *(f"{count:,}" for count in counts), edges]
        yield cells, report.explained, report.ok


def main(out):
    """Run all, and write the page."""
    rows, explained, failed = [], {}, []
    with tempfile.TemporaryDirectory() as folder:
        for runs in (jax_runs, torch_runs):
            for name, step, traces in runs(Path(folder)):
                for cells, reasons, ok in row(name, step, traces):
                    rows.append([*cells, "agrees" if ok else "differs"])
                    print(" | ".join(rows[-1]), flush=True)
                    failed += [] if ok else [name]
                    for reason, count in reasons.items():
                        explained[reason] = explained.get(reason, 0) + count
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in ("jax", "jaxlib", "torch"))
    lines = [
        "# Captures against real runs",
        "",
        "Written by `make validate`. Every tiny model of `models/`, run for real (JAX on host CPU "
        "devices, PyTorch on gloo processes), profiled and compared with its capture on all ranks: "
        "collectives, GEMMs, convolutions and attentions, one by one; light ops are compared but "
        "do not decide. *By name*: the trace has no sizes of them. *Edges*: captured dependencies "
        "between ops that can be told apart, and how many of them ran in that order.",
        "",
        f"{datetime.date.today()}; {versions}; Python {sys.version.split()[0]}.",
        "",
        "| " + " | ".join((*_COLUMNS, "verdict")) + " |",
        "|" + "---|" * (len(_COLUMNS) + 1),
        *("| " + " | ".join(cells) + " |" for cells in rows),
        "",
        "## Explained differences in form",
        "",
        "| reason | pairs |",
        "|---|---|",
        *(f"| {reason} | {count:,} |" for reason, count in sorted(explained.items())),
        "",
    ]
    Path(out).write_text("\n".join(lines))
    if failed:
        print(f"differs: {', '.join(failed)}", file=sys.stderr)
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
