"""Results as tables: the measured part of ``README.md``, between its two markers.

text(results)                       # Markdown
write(results, Path("benchmarks"))  # README.md and growth.png

Longer than 300 lines because it is one table after another, each with its columns and its words.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tables import Results, growth_table, row, table, verdict

BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"
FORMS = {"text": "MLIR text", "bytecode": "MLIR bytecode", "hlo": "HLO proto"}
HEAD = ["what", "measured", "fastest - slowest", "peak memory", "target", "met"]
#: What STAGE, a template generator, takes for 512 ranks (seconds, bytes), on a machine like ours.
STAGE_SECONDS, STAGE_BYTES = 128, 521e6


def write(results: Results, folder: Path) -> None:
    """Write README.md, the plots into ``folder``.

    Raises:
        ValueError: README.md has no markers.
    """
    from plots import plot

    plot(results["growth"], folder / "growth.png")
    for part, name in (("capture_growth", "captures.png"), ("torch_growth", "torch_captures.png")):
        if part in results:
            plot(results[part], folder / name)
    page = folder / "README.md"
    page.write_text(between(page.read_text(), text(results)))


def between(page: str, new: str) -> str:
    """``page`` with what stands between the markers replaced.

    Raises:
        ValueError: the markers are not there.
    """
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"no {BEGIN} and {END}")
    return f"{before}{BEGIN}\n{new.strip()}\n{END}{after}"


def text(results: Results) -> str:
    """The measured part of the page."""
    parts = [
        machine(results["machine"], results["parts"]),
        table(HEAD, [*unrolled_rows(results["unrolled"]), *_trace_rows(results)]),
        _writing(results),
        _captures(results),
        _torch_captures(results),
        _targets(results.get("targets", {})),
        _simulations(results.get("simulations", {})),
        _post_execution(results.get("post_execution", {})),
        _sweeps(results.get("sweeps", {})),
        "## Growth\n\n![Seconds against ops, ranks, written ranks and trip count](growth.png)\n",
        "The last two rows of each table are exponents *a* of size^*a*: fitted to all points "
        "(log-log least squares), and between the last two, where start-up matters least. 0 is "
        "no growth, 1 is proportional.\n",
        *(growth_table(item) for item in results["growth"].values()),
    ]
    return "\n".join(parts)


def machine(item: Results, parts: Results) -> str:
    """Machine, versions and dates in one paragraph."""
    versions = ", ".join(f"{name} {version}" for name, version in item["versions"].items())
    disk = item["disk"]
    when = "; ".join(
        f"{name} on {part['date']} at {part['commit']}, when other processes had "
        f"{part['others']:.0%} of the cores{_on(part, item)}"
        for name, part in parts.items()
    )
    return (
        f"Measured with {item['cpu']}, {item['cores']} shared cores, "
        f"{item['memory_bytes'] / 2**30:.0f} GiB of memory, {disk['file_system']} on "
        f"{disk['device']} ({disk['bytes'] / 2**30:.0f} GiB), Linux {item['kernel']}; {versions}. "
        f"Parts: {when}.\n"
    )


def _on(part: Results, last: Results) -> str:
    """The processor, where it was another one than the last part's."""
    return f", on {part['cpu']}" if part.get("cpu", last["cpu"]) != last["cpu"] else ""


def unrolled_rows(forms: Results) -> list[list[str]]:
    """Rows of the unrolled module."""
    rows = [
        row(
            f"{FORMS[form]} to graph, {item['ops']:,} ops, unrolled",
            item,
            target="5 s",
            met=item["wall"] <= 5,
        )
        for form, item in forms.items()
    ]
    for form, item in forms.items():
        seconds, least = item["read"] + item["walk"], 100_000 if form == "hlo" else 30_000
        rate = item["ops"] / seconds
        rows.append(
            [
                f"{FORMS[form]}: reader {item['read']:.2f} s + walker {item['walk']:.2f} s",
                f"{rate / 1000:.0f}k ops/s walked, {item['stored'] / seconds / 1000:.0f}k read",
                "",
                "",
                f"{least // 1000}k ops/s",
                verdict(rate >= least),
            ]
        )
    return rows


def _trace_rows(results: Results) -> list[list[str]]:
    small, large, resnet = (results[key] for key in ("llama_8b", "llama_405b", "resnet50"))
    # The peer's time, scaled to as many ops.
    limit = resnet["peer_seconds"] / resnet["peer_ops"] * resnet["ops"] / 10
    gigabyte: Callable[[Results], bool] = lambda item: item["peak"] < 1e9  # noqa: E731
    return [
        row(_traces("8B", small), small, target="5 s", met=small["wall"] <= 5),
        row("Llama-3 8B, `--ranks 0-7`", small["ranks_0_7"]),
        row(f"Llama-3 8B, `flint check`, {small['check']['nodes']:,} nodes", small["check"]),
        row(_traces("405B", large), large, target="1 GB", met=gigabyte(large)),
        row("Llama-3 405B, `--ranks 0-7`", large["ranks_0_7"]),
        row(f"Llama-3 405B, `flint check`, {large['check']['nodes']:,} nodes", large["check"]),
        row(
            f"ResNet-50 training step, {resnet['ops']:,} ops, a node per op, 4 ranks",
            resnet,
            target=f"{limit:.2f} s",
            met=resnet["wall"] <= limit,
        ),
    ]


def _traces(name: str, item: Results) -> str:
    return (
        f"Llama-3 {name} module to {item['ranks']:,} traces, {item['trace_bytes'] / 1e6:,.0f} MB "
        f"({item['distinct_files']:,} distinct files)"
    )


def _writing(results: Results) -> str:
    rows = []
    for name, item in (("8B", results["llama_8b"]), ("405B", results["llama_405b"])):
        size, loop, plain = (item["writing"][key] for key in ("bytes", "loop", "plain"))
        # Whatever `save` does beyond the loop (kernels, unrolling, encoding, names, other files).
        rows.append(
            [
                name,
                f"{item['graph']:.2f} s",
                f"{item['save']:.2f} s",
                f"{loop:.3f} s, {size / loop / 1e6:,.0f} MB/s",
                f"{plain:.3f} s, {size / plain / 1e6:,.0f} MB/s",
                f"{item['writing']['share']:.0%}",
                f"{plain / item['save']:.0%}",
                verdict(item["writing"]["share"] >= 0.5),
            ]
        )
    resnet, small = results["resnet50"], results["llama_8b"]
    ratio = resnet["peer_seconds"] / resnet["peer_ops"] * resnet["ops"] / resnet["wall"]
    head = ["", "graph", "save in total", "of which the loop that writes the traces"]
    head += ["plain write", "loop against plain", "save against plain", "loop at 50 % or more"]
    return table(head, rows) + (
        "\nThe loop stamps what differs per rank into an encoded trace and writes the file; "
        "the plain write is one `write` per file of the same number of bytes from an "
        "existing buffer. Both end in the page cache of the same disk; they alternate, with "
        "a flush in between, and the share is the median of the pairs. The rest of `save` "
        "goes to kernels, unrolling, encoding, the node table and the other files, once per "
        "workload.\n\nPeers, on a machine like this one (4 shared cores): hespas took "
        f"{resnet['peer_seconds']} s for the per-op conversion of a ResNet-50 training "
        f"module of {resnet['peer_ops']:,} ops. It is not in a package registry and could "
        "not be run here; its time is scaled to the ops of our module, which makes Flint "
        f"{ratio:.0f} times as fast. STAGE, a template generator, took {STAGE_SECONDS} s for "
        f"512 ranks and {STAGE_BYTES / 1e6:.0f} MB: {STAGE_BYTES / STAGE_SECONDS / 1e6:.1f} "
        f"MB/s against {small['trace_bytes'] / small['wall'] / 1e6:,.0f} MB/s of whole "
        "command.\n"
    )


#: Capture -> seconds and bytes that it may take, and what to call it.
CAPTURE_TARGETS = {
    "8B": (5, None),
    "405B": (10, 1.5e9),
    "405B on 16,384": (60, None),
    "8B on 1,048,576": (None, None),
}


def _captures(results: Results) -> str:
    if "captures" not in results:
        return ""
    rows = []
    for name, item in results["captures"].items():
        seconds, size = CAPTURE_TARGETS[name]
        wanted = [f"{seconds} s"] if seconds else []
        wanted += [f"{size / 1e9:g} GB"] if size else []
        met = item["wall"] <= (seconds or item["wall"]) and item["peak"] <= (size or item["peak"])
        rows.append(
            [
                f"Llama-3 {name.split(' ')[0]} on {item['mesh'].replace(',', ' x ')}",
                f"{item['wall']:.2f} s",
                f"{item['fastest']:.2f} - {item['slowest']:.2f} s",
                f"{item['partitioner']:.2f} s",
                f"{item['peak'] / 1e6:,.0f} MB",
                " and ".join(wanted),
                verdict(met if wanted else None),
            ]
        )
    whole = results["everybody"]
    size = whole["bytes"]
    head = ["step", "whole command", "fastest - slowest", "of which waiting for XLA"]
    head += ["peak of all processes", "target", "met"]
    return (
        "## Captures\n\n`flint capture`, from the step's source to the graph and the traces of "
        "ranks 0 to 7. XLA's partitioner runs in a child process; memory is that of parent and "
        "child together.\n\n"
        + table(head, rows)
        + (
            f"\nAll {whole['ranks']:,} traces of the 405B step on 128 x 8 x 16, "
            f"{size / 1e9:,.1f} GB: {whole['wall']:.1f} s, of which {whole['save']:.1f} s go to "
            f"writing ({size / whole['save'] / 1e6:,.0f} MB/s); one plain write per file of the "
            f"same size took {whole['plain']:.1f} s ({size / whole['plain'] / 1e6:,.0f} MB/s) in "
            "the same run.\n\n![Seconds against devices and unrolled layers](captures.png)\n\n"
        )
        + "\n".join(growth_table(item) for item in results["capture_growth"].values())
    )


#: Capture of a PyTorch step -> seconds that it may take, and bytes of its largest process.
TORCH_TARGETS = {"8B on 512": (25, None), "8B on 32,768": (60, 1e9), "405B on 2,048": (180, None)}
#: What the published prototype of this idea took for the first of them, seconds on such a machine.
PROTOTYPE_SECONDS = 39


def _torch_captures(results: Results) -> str:
    if "torch_captures" not in results:
        return ""
    rows = []
    for name, item in results["torch_captures"].items():
        seconds, size = TORCH_TARGETS[name]
        met = item["wall"] <= seconds and (size is None or item["largest"] <= size)
        rows.append(
            [
                f"Llama-3 {name} ranks ({item['mesh'].replace(',', ' x ')})",
                f"{item['wall']:.1f} s",
                f"{item['fastest']:.1f} - {item['slowest']:.1f} s",
                f"{item['largest'] / 1e6:,.0f} MB",
                f"{seconds} s" + (f" and {size / 1e9:g} GB" if size else ""),
                verdict(met),
            ]
        )
    head = ["step", "whole command", "fastest - slowest", "largest process"]
    return (
        "## Captures of PyTorch steps\n\nFSDP2 x tensor parallel, bf16, clipping, AdamW; each "
        "recorded rank is a process.\n\n"
        + table([*head, "target", "met"], rows)
        + f"\nA prototype that warmed up every foreach op through DTensor took {PROTOTYPE_SECONDS} "
        "s for the first, on a machine like this one.\n\n"
        "![Seconds against ranks and layers](torch_captures.png)\n\n"
        + "\n".join(growth_table(item) for item in results["torch_growth"].values())
    )


#: Capture at the optimized level -> seconds that it may take.
OPTIMIZED_TARGETS = {"8B on 512": 25, "8B on 32,768": 60}


def _targets(results: Results) -> str:
    if not results:
        return ""
    rows = []
    for name, item in results.items():
        seconds = OPTIMIZED_TARGETS.get(name)
        rows.append(
            row(
                f"Llama-3 {name} H100s ({item['mesh'].replace(',', ' x ')})",
                item,
                target=f"{seconds} s" if seconds else "",
                met=item["wall"] <= seconds if seconds else None,
            )
        )
    return (
        "## Captures at the optimized level\n\nXLA's GPU compiler for the whole mesh, in a child "
        "process; memory is that of all processes.\n\n" + table(HEAD, rows)
    )


def _simulations(results: Results) -> str:
    if not results:
        return ""
    rows = [
        row(f"Llama-3 8B on {ranks} ranks", item, target="2 s", met=item["wall"] <= 2)
        for ranks, item in results.items()
    ]
    return "## Simulations\n\n`flint simulate` on a workload folder.\n\n" + table(HEAD, rows)


def _post_execution(results: Results) -> str:
    if not results:
        return ""
    rows = [
        row(
            f"Kineto trace of {item['bytes'] / 1e6:.0f} MB, {item['events']:,} events, "
            f"{item['nodes']:,} nodes",
            item,
            target="20 s, 2 GB" if size == "100" else "",
            met=item["wall"] <= 20 and item["peak"] < 2e9 if size == "100" else None,
        )
        for size, item in results["kineto"].items()
    ]
    limit = results["peer"] / 5
    first = next(iter(results["nodes"]))
    for count, item in results["nodes"].items():
        judged = {"target": f"{limit:.2f} s", "met": item["wall"] <= limit}
        what = f"PyTorch execution trace of {int(count):,} nodes"
        rows.append(row(what, item, **(judged if count == first else {})))
        rows.append(["of it reading, linking, writing", f"{item['work']:.2f} s", "", "", "", ""])
        if "peer" in item:
            rows.append(row(f"Chakra's converter on the same file: {_times(item)}", item["peer"]))
    growth = ""
    if "wall_exponent" in results:
        growth = (
            f"Time grows with size^{results['wall_exponent']:.2f} (from 50 to 100 MB "
            f"{results['last_wall_exponent']:.2f}), peak memory with "
            f"size^{results['peak_exponent']:.2f} ({results['last_peak_exponent']:.2f}).\n\n"
        )
    return (
        "## Post-execution traces\n\n`flint convert` on profiles. The target for 10,000 nodes "
        f"of the simplest kind is a fifth of the {results['peer']} s that the converter of "
        "MLCommons Chakra once took on another machine. It is not in a package registry; its "
        "rows were measured with its own source and command line, alternating with ours "
        "(`chakra_converter PyTorch`, which always writes a debug log).\n\n"
        + table(HEAD, rows)
        + "\n"
        + growth
    )


def _times(item: Results) -> str:
    """How long the peer takes by our time."""
    return f"{item['peer']['wall'] / item['wall']:.1f} times as long"


#: Share of the cores' time that a sweep must use.
EFFICIENCY_TARGET = 0.8


def _sweeps(item: Results) -> str:
    if not item:
        return ""
    efficiency = item["efficiency"]
    cells = [
        f"Llama-3 8B, {item['points']} points, {item['cores']} processes on as many cores",
        f"{item['wall']:.2f} s",
        f"{item['core']:.2f} s",
        f"{item['alone']:.2f} s",
        f"{item['again']:.2f} s",
        f"{100 * item['loops']:.0f}%",
        f"{100 * item['of_points']:.0f}%",
        f"{100 * efficiency:.0f}%",
        f"{100 * EFFICIENCY_TARGET:.0f}%",
        verdict(efficiency >= EFFICIENCY_TARGET),
    ]
    head = [
        "sweep", "whole command", "one core", "one process", "all results present",
        "independent loops", "points alone", "parallel efficiency",
    ]  # fmt: skip
    return (
        "## Sweeps\n\nThe parallel efficiency is the time on one core, divided by the number of "
        "cores and by the whole command's time. For the points alone, the time of the same "
        "command with all results present is first subtracted from the time on one core. One "
        "process that may use all cores is faster than one on a single core, because the "
        "compiler has threads. Independent loops reach the share in their column, which is what "
        "the machine allows.\n\n" + table([*head, "target", "met"], [cells])
    )
