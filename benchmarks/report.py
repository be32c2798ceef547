"""Results as tables and a plot: ``README.md`` and ``growth.png`` beside the scripts."""

from __future__ import annotations

import datetime
import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

Results = dict[str, Any]
_PACKAGES = ("jaxlib", "numpy", "protobuf", "pyarrow")


def write(results: Results, folder: Path) -> None:
    """Write README.md and growth.png into ``folder``."""
    if "growth" in results:
        plot(results["growth"], folder / "growth.png")
    (folder / "README.md").write_text(text(results, folder.parent))


def text(results: Results, root: Path) -> str:
    """The page."""
    unrolled, small, large = (results[k] for k in ("unrolled", "llama_8b", "llama_405b"))
    resnet = results["resnet50"]
    rows = [
        [
            f"{form}: unrolled module of {item['ops']:,} ops, file to graph",
            f"{item['wall']:.2f} s",
            "5 s",
            f"{item['ops'] / item['wall'] / 1000:.0f}k ops/s, imports included",
        ]
        for form, item in unrolled.items()
    ]
    rows += [
        [
            f"{form}: reader and walker alone",
            f"{item['ops'] / item['read_and_walk_seconds'] / 1000:.0f}k ops/s",
            f"{100 if form == 'hlo' else 30}k ops/s",
            f"{item['read_and_walk_seconds']:.2f} s",
        ]
        for form, item in unrolled.items()
    ]
    for name, item, target in (("8B", small, "5 s"), ("405B", large, "1 GB")):
        written = item["trace_bytes"] / item["write_seconds"] / 1e6
        plain = item["trace_bytes"] / item["plain_write_seconds"] / 1e6
        rows += [
            [
                f"Llama-3 {name} module to {item['ranks']:,} traces",
                f"{item['wall']:.2f} s, {item['peak'] / 1e6:.0f} MB",
                target,
                f"{item['trace_bytes'] / 1e6:,.0f} MB, {item['distinct_files']:,} distinct files",
            ],
            [
                f"Llama-3 {name}, the loop that writes the traces",
                f"{written:,.0f} MB/s",
                "50 % of plain writes",
                f"{written / plain:.0%} of {plain:,.0f} MB/s (plain write of the same bytes)",
            ],
            [
                f"Llama-3 {name}, `flint check`",
                f"{item['check']['wall']:.1f} s, {item['check']['peak'] / 1e6:.0f} MB",
                "",
                "",
            ],
        ]
    rows.append(
        [
            f"ResNet-50 training step, {resnet['ops']:,} ops, one node per op",
            f"{resnet['wall']:.2f} s",
            f"{resnet['peer_seconds'] / 10:.2f} s",
            f"hespas: {resnet['peer_seconds']} s for {resnet['peer_ops']:,} ops (published)",
        ]
    )
    parts = [
        "# Benchmarks\n",
        "`make bench` runs them and writes this page. Whole commands, imports included; medians of "
        f"{small['runs']} runs ({large['runs']} for 405B) after one to warm up.\n",
        machine(root),
        table(["what", "median", "target", "remark"], rows),
        "The loop stamps what differs per rank into the encoded trace and writes it; the plain "
        "write is one `write` call per file from a buffer that is there. Both go to the page cache "
        "of the same disk.\n",
        "## Growth\n",
        "![growth](growth.png)\n",
    ]
    for item in results["growth"].values():
        parts += [
            f"Seconds (and peak MB) against {item['axis']}; the upper half grows like "
            f"{item['axis']}^{item['exponent']:.2f}.\n",
            table(
                [item["axis"], "seconds", "MB"],
                [
                    [f"{size:,}", f"{wall:.2f}", f"{peak / 1e6:.0f}"]
                    for size, wall, peak in item["rows"]
                ],
            ),
        ]
    return "\n".join(parts)


def table(head: list[str], rows: list[list[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def machine(root: Path) -> str:
    """Machine, versions and date in one paragraph."""
    model = platform.processor() or "unknown processor"
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.split(":", 1)[1].strip()
            break
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in _PACKAGES)
    commit = subprocess.run(
        ["git", "-C", str(root), "rev-parse", "--short", "HEAD"],
        capture_output=True, text=True, check=False,
    ).stdout.strip()  # fmt: skip
    return (
        f"{model}, {os.cpu_count()} cores (shared), {memory:.0f} GiB; Python "
        f"{platform.python_version()}, {versions}; commit {commit}; {datetime.date.today()}.\n"
    )


def plot(growth: Results, path: Path) -> None:
    """One panel per axis, both scales logarithmic."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot
    from matplotlib.ticker import NullFormatter, ScalarFormatter

    figure, panels = pyplot.subplots(1, len(growth), figsize=(3.2 * len(growth), 3), sharey=True)
    for panel, item in zip(panels, growth.values(), strict=True):
        sizes, walls = [row[0] for row in item["rows"]], [row[1] for row in item["rows"]]
        panel.loglog(sizes, walls, "o-", color="tab:blue")
        panel.axhline(item["smallest"], color="gray", linewidth=0.8, linestyle=":")
        panel.set_xlabel(item["axis"])
        panel.xaxis.set_minor_formatter(NullFormatter())
        panel.set_yticks([0.5, 1, 2], minor=False)
        panel.yaxis.set_major_formatter(ScalarFormatter())
        panel.yaxis.set_minor_formatter(NullFormatter())
        panel.grid(True, which="major", linewidth=0.4)
    panels[0].set_ylabel("seconds, whole command")
    figure.tight_layout()
    figure.savefig(path, dpi=110)
