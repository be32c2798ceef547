"""Every tiny model run for real, profiled, captured and compared; the result as a page of docs.

    python -m tests.validation.table docs/validation.md
    python -m tests.validation.table - fsdp_tp llama3        # these two, nothing written

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
from flint.validation.validating import validate
from tests.models.jax.names import MODELS
from tests.support.children import HUNG, child_environment
from tests.validation.totals import totals

HERE = Path(__file__).parent
SUPPORT = HERE.parent / "support"
_COUNTED = ("captured", "executed", "matched", "by_name", "of_any_group")
_COLUMNS = (
    "configuration", "mesh", "trace", "captured", "executed", "matched", "by name", "unknown group",
    "edges", "lighter ops", "matched", "explained", "unexplained", "verdict",
)  # fmt: skip


def run(*command, environment, given=""):
    """Run a child on an input; its last words where it fails."""
    done = subprocess.run(
        [sys.executable, *map(str, command)],
        input=given, capture_output=True, text=True, env=environment, timeout=HUNG, check=False,
    )  # fmt: skip
    if done.returncode or "Traceback" in done.stdout:
        raise SystemExit(f"{command[0]}: {done.stdout[-2000:]}{done.stderr[-2000:]}")


def jax_runs(folder, chosen):
    """(name, capture, traces) of every tiny model of JAX."""
    models = {name: place for name, place in MODELS.items() if not chosen or name in chosen}
    if not models:
        return
    for name in models:
        (folder / name).mkdir()
    requests = "".join(f"{folder / name} {':'.join(place)}\n" for name, place in models.items())
    run(SUPPORT / "host_devices.py", environment=child_environment(16), given=requests)
    for name, (module, attribute) in models.items():
        step = getattr(importlib.import_module(module), attribute)
        yield name, step, {"xplane": [folder / name / "profile"]}


def torch_runs(folder, chosen):
    """(name, capture, traces) of every tiny step of PyTorch."""
    steps = importlib.import_module("tests.validation.torch_steps")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    for name, step in steps.STEPS.items():
        if chosen and name not in chosen:
            continue
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
            yield [name, mesh, form, *[""] * 10, f"refused: {error}"], {}, False
            continue
        found, light = totals(report), totals(report, lighter=True)
        counts = [found[key] for key in _COUNTED]
        edges = f"{report.edges - report.contradicted:,} of {report.edges:,}"
        lighter = ["", "", "", ""]
        if report.comparable:
            numbers = (light["captured"], light["matched"], light["explained"], report.others)
            lighter = [f"{number:,}" for number in numbers]
        verdict = "agrees" if report.ok else "differs"
        cells = [name, mesh, form, *(f"{count:,}" for count in counts), edges, *lighter, verdict]
        yield cells, report.explained, report.ok


def table(columns, rows):
    """Lines of a table in Markdown."""
    return [
        "| " + " | ".join(columns) + " |",
        "|" + "---|" * len(columns),
        *("| " + " | ".join(cells) + " |" for cells in rows),
    ]


def published_counts():
    """The section on published kernel counts."""
    published = importlib.import_module("tests.validation.published")
    config = importlib.import_module("flint.models.torch.llama3").LLAMA3_8B
    rows = []
    for name, (shape, _, numbers) in published.PARALLELISMS.items():
        for what, found in (
            ("published", numbers),
            ("captured, split as the counts show", published.plain(name, config)),
            ("captured, as `models/torch/llama3.py`", published.sequence_parallel(name, config)),
        ):
            if found is not numbers:
                found = published.counts(found.capture())
            mesh = "x".join(map(str, shape))
            rows.append([name, mesh, what, *(f"{count:,}" for count in found)])
            print(" | ".join(rows[-1]), flush=True)
    names = ("parallelism", "mesh", "step", *map(str, published.COUNTED))
    return [*table(names, rows), "", *published.EXPLANATION]


def main(out, *chosen):
    """Run all, or those chosen, and write the page."""
    rows, explained, failed = [], {}, []
    with tempfile.TemporaryDirectory() as folder:
        for runs in (jax_runs, torch_runs):
            for name, step, traces in runs(Path(folder), chosen):
                for cells, reasons, ok in row(name, step, traces):
                    rows.append(cells)
                    print(" | ".join(cells), flush=True)
                    failed += [] if ok else [name]
                    for reason, count in reasons.items():
                        explained[reason] = explained.get(reason, 0) + count
    if failed:
        print(f"differs: {', '.join(failed)}", file=sys.stderr)
    if chosen:
        return bool(failed)
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in ("jax", "jaxlib", "torch"))
    reasons = [[reason, f"{count:,}"] for reason, count in sorted(explained.items())]
    lines = [
        "# Captures against real runs",
        "",
        "Written by `make validate`. Every tiny model of `models/` really runs (JAX on host CPU "
        "devices, PyTorch on gloo processes), is profiled, and is compared with its capture on "
        "all ranks: collectives, GEMMs, convolutions and attentions, one by one. *By name*: ops "
        "whose sizes the trace does not record. *Unknown group*: communications whose ranks the "
        "trace does not record. *Edges*: captured dependencies between ops that can be "
        "distinguished, and how many of them ran in that order. *Lighter ops*: all other captured "
        "ops. They affect the verdict if they are element-wise ops or reductions and the number "
        "of ops of one name and size between two of the others differs. XLA fuses them, so only "
        "PyTorch's are compared. The next columns count those with a partner of the same sizes, "
        "those of either side without a partner for a reason in the table below, and those "
        "without a partner for no known reason. An execution trace (et) may nest ops wrongly if "
        "two threads end ops at the same moment. Flint corrects impossible nesting; the rest is "
        "among the unexplained. Context parallelism (cp) exists only for GPU attention, so these "
        "runs use that kernel, computed by the CPU's.",
        "",
        "To do the same for your own step, see `examples/validate_jax_step.py` and "
        "`examples/validate_torch_step.py`; they run on any machine.",
        "",
        "[tamperings.md](tamperings.md) lists the wrong captures that were tried, and shows which "
        "of them are caught.",
        "",
        f"{datetime.date.today()}; {versions}; Python {sys.version.split()[0]}.",
        "",
        *table(_COLUMNS, rows),
        "",
        "## Explained differences in form",
        "",
        *table(("reason", "pairs, or ops without a partner"), reasons),
        "",
        "## Published kernel counts: Llama 3 8B on H200",
        "",
        *published_counts(),
    ]
    Path(out).write_text("\n".join(lines))
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
