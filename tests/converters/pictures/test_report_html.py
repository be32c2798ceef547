"""Report pages: the simulation's numbers, no foreign markup, no other file.

Longer than 300 lines because all its tests read the same page, which is written once.
"""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

from flint.cli import main
from flint.converters.pictures.layers import block_numbers, layer_seconds
from flint.converters.pictures.report import report
from flint.errors import UsageError
from flint.graph.building import GraphBuilder, TableBuilder
from flint.graph.communication import Communication
from flint.graph.graph import Loop, Source, with_tables
from flint.host.pages import table
from flint.host.readable import human_bytes
from flint.mesh.groups import along_axes
from flint.mesh.mesh import Mesh
from flint.simulation.recording import record
from tests.converters.pictures.browser import misplaced, needs_browser, opened
from tests.simulation.test_simulate import BIG, overlapped, pipeline, product, workload_of

MESH = Mesh((8, 8), ("data", "model"))
_VOID = {"meta", "br", "hr"}


class Page(HTMLParser):
    """What a browser would see: tags with attributes, cells of tables, text; tags must match."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.rows, self.text, self._open = [], [], [], []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in _VOID:
            self._open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)
        if self._open and self._open[-1] in ("td", "th"):
            self.rows[-1][-1] += data

    def row(self, name):
        return next(row for row in self.rows if row[0] == name)


def page_of(workload):
    return report(workload.simulate("dgx-h100"), record(workload, "dgx-h100"))


def named(workload, layer):
    """The workload with everything in one layer."""
    [program] = workload.programs
    sources = tuple(replace(source, layer=layer) for source in program.graph.tables.sources)
    sources = sources or (Source(layer=layer),)
    graph = with_tables(program.graph, replace(program.graph.tables, sources=sources))
    return replace(workload, programs=(replace(program, graph=graph),))


def number(text):
    """A time as it is written, in seconds."""
    value, _, unit = text.partition(" ")
    return float(value) * {"s": 1, "ms": 1e-3, "us": 1e-6, "ns": 1e-9, "": 0}[unit]


def test_the_tables_have_the_simulations_numbers():
    workload = overlapped(MESH, "data", 3)
    result, page = workload.simulate("dgx-h100"), Page(page_of(workload))
    for name, value in (
        ("step", result.step_seconds),
        ("compute", result.compute_seconds),
        ("communication", result.communication_seconds),
        ("exposed communication", result.exposed_communication_seconds),
    ):
        # Four digits are shown.
        assert number(page.row(name)[1]) == pytest.approx(value, rel=6e-4)
    matmul, gather = page.row("matmul"), page.row("all-gather over data")
    assert matmul[1] == "4" and gather[1] == "1"
    assert number(matmul[2]) == pytest.approx(result.compute_seconds, rel=6e-4)
    assert page.row("data")[1] == "all-gather"
    assert number(page.row("data")[3]) == pytest.approx(result.communication_seconds, rel=6e-4)


def test_time_by_layer_adds_up_to_the_simulation():
    workload = named(overlapped(MESH, "data", 3), "block_0/attn")
    result, recording = workload.simulate("dgx-h100"), record(workload, "dgx-h100")
    found = layer_seconds(recording.ranks[0])
    assert set(found) == {"block_0/attn"}
    compute, communication, flops = np.sum(list(found.values()), axis=0)
    assert compute == pytest.approx(result.compute_seconds)
    assert communication == pytest.approx(result.communication_seconds)
    assert flops * 64 == pytest.approx(result.flops)
    assert number(Page(report(result, recording)).row("block_0/attn")[1]) == pytest.approx(
        compute, rel=6e-4
    )


def test_a_roofline_has_a_circle_per_kernel_and_the_peaks_in_use():
    page = Page(page_of(overlapped(MESH, "data", 3)))
    circles = [attributes for tag, attributes in page.tags if tag == "circle"]
    assert len(circles) == 4  # three products during the gather, and the one that waits for it
    assert "matmul bf16" in page.text
    # A product of 4096 cubed: 2 * 4096^3 FLOPs over 64 MiB read and 32 MiB written.
    intensity = 2 * 4096**3 / (96 * 2**20)
    assert any(f"{intensity:.3g} FLOPs per byte" in text for text in page.text)


@pytest.mark.parametrize("evil", ["<script>alert(1)</script>", "\"'><img src=x onerror=y>", "&lt;"])
def test_names_are_text_and_never_markup(evil):
    page = Page(page_of(named(overlapped(MESH, "data"), evil)))
    assert page.row(evil)
    assert not {"script", "img"} & {tag for tag, _ in page.tags}


def test_a_page_refers_to_nothing():
    text = page_of(pipeline(3))
    page = Page(text)
    refers = {"src", "href", "srcset", "xlink:href", "data", "action", "poster", "background"}
    assert not any(refers & attributes.keys() for _, attributes in page.tags)
    assert not {"script", "link", "iframe", "object", "embed"} & {tag for tag, _ in page.tags}
    assert not re.search(r"url\(|@import|https?:", text)
    assert not any(name.startswith("on") for _, attributes in page.tags for name in attributes)


def test_memory_over_time_by_hand():
    """Value, weight of 32 MiB each are inputs and stay; three products follow one another.

    The gathered weight lives from its start, beside at most two results of products: the operand
    of a product and what it makes.  The last product reads the third's result and the gathered
    weight and makes the output.
    """
    [record_of] = record(overlapped(MESH, "data", 3), "dgx-h100").ranks
    times, alive = record_of.memory_over_time()
    mib = 32 << 20
    assert alive.tolist() == [3 * mib, 4 * mib, 5 * mib, 5 * mib, 5 * mib]
    # Each counts from the end of the kernels before it; the gather is none.
    kernels = np.sort(record_of.end[record_of.computes])
    assert times.tolist() == [0, 0, *kernels[:3].tolist()]


@pytest.mark.parametrize("workload", [overlapped(MESH, "data", 5), pipeline(3)])
def test_the_highest_point_over_time_is_the_peak(workload):
    result = workload.simulate("dgx-h100")
    for item, program in zip(record(workload, "dgx-h100").ranks, result.programs, strict=True):
        _, alive = item.memory_over_time()
        assert alive.max() == program.figures.peak_memory_bytes
    assert human_bytes(result.peak_memory_bytes) in Page(page_of(workload)).text


def test_a_loop_keeps_its_bytes_until_its_last_kernel_is_over():
    """The gather that is issued after the loop begins with it, and does not end its time."""
    tables = TableBuilder()
    body = GraphBuilder(tables)
    made = product(body, body.input(tables.type(BIG)))
    builder = GraphBuilder(tables)
    value, weight = builder.input(tables.type(BIG)), builder.input(tables.type(BIG))
    (value,) = builder.loop(Loop(body.finish((made,)), 1, 3), (value,))
    groups, shard = along_axes(MESH, ("data",)), (BIG.bytes // 8,)
    item = Communication("all_gather", None, groups, None, shard, (BIG.bytes,), ("bf16",))
    (gathered,) = builder.communication(item, (weight,), (BIG,))
    graph = with_tables(builder.finish((value, gathered)), tables.finish())
    [found] = record(workload_of(graph, mesh=MESH), "dgx-h100").ranks
    assert found.start[found.communicates].tolist() == [0]
    times, _ = found.memory_over_time()
    assert times.tolist() == [0, found.end[found.computes].max()]


def test_memory_over_time_is_only_known_between_kernels():
    recording = record(overlapped(MESH, "data"), "dgx-h100", granularity="region")
    assert recording.ranks[0].memory_over_time() is None


def test_every_program_has_its_part():
    page = Page(page_of(pipeline(3)))
    assert "Program main_0 (ranks 0-3)" in page.text and "Program main_1 (ranks 4-7)" in page.text
    assert len(page.row("main_0")) == 9


def test_a_step_that_does_not_fit_reports_it():
    workload = overlapped(MESH, "data")
    result = replace(workload.simulate("dgx-h100"), memory_bytes=1 << 20)
    assert "does not fit" in report(result, record(workload, "dgx-h100"))


def test_a_table_escapes_names_of_columns_too():
    assert "<b>" not in table(("<b>", "><b>"), [("<b>", "<b>")])


def test_the_command_writes_a_page_and_reports_it(tmp_path, capsys):
    overlapped(MESH, "data").save_programs(tmp_path / "out")
    path = tmp_path / "report.html"
    with pytest.raises(SystemExit) as stopped:
        main(["simulate", str(tmp_path / "out"), "--html", str(path)])
    assert stopped.value.code == 0
    shown = capsys.readouterr()
    step = Page(path.read_text()).row("step")[1]
    assert step in shown.out and f"wrote {path}" in shown.err


def test_a_page_without_a_folder_is_refused(tmp_path):
    overlapped(MESH, "data").save_programs(tmp_path / "out")
    with pytest.raises(SystemExit) as stopped:
        main(["simulate", str(tmp_path / "out"), "--html", str(tmp_path / "none" / "a.html")])
    assert stopped.value.code == UsageError.exit_status


def in_layers(workload):
    """The workload with every node in a separate layer: layers.0.mlp, layers.1.mlp, ..."""
    [program] = workload.programs
    graph = program.graph
    tables = replace(
        graph.tables, sources=tuple(Source(layer=f"layers.{i}.mlp") for i in range(len(graph)))
    )
    graph = replace(graph, source=np.arange(len(graph)))
    return replace(workload, programs=(replace(program, graph=with_tables(graph, tables)),))


def test_layers_are_a_column_each_and_a_row_together():
    page = Page(page_of(in_layers(overlapped(MESH, "data", 125))))
    row = page.row("layers.*.mlp")
    assert row[1] == "127"  # 125 products, the gather, the product that waits for it
    written = [text for text in page.text if text.isdigit()]
    assert "0" in written and "126" in written
    titles = [text for text in page.text if text.startswith("125: compute ")]
    assert len(titles) == 1


@pytest.mark.parametrize(
    ("layers", "starred"),
    [
        (["layers.0.mlp", "layers.12.mlp"], {"layers.*.mlp"}),
        (["blocks/block_0/attn", "blocks/block_3/attn"], {"blocks/block_*/attn"}),
        (["head_v2", "embedding"], {"head_v2", "embedding"}),
        # A stage of a pipeline: its number is not a block's, and neither is an expert's.
        (["0.layers.0.mlp", "0.layers.1.mlp", "0.norm"], {"0.layers.*.mlp", "*.norm"}),
        (
            [f"model.layers.{i}.experts.{j}" for i in range(3) for j in range(2)],
            {"model.layers.*.experts.0", "model.layers.*.experts.1"},
        ),
    ],
)
def test_blocks_are_known_by_the_number_that_varies_most(layers, starred):
    numbers = block_numbers(layers)
    assert starred == {
        f"{layer[: number.start()]}*{layer[number.end() :]}" if number else layer
        for layer, number in numbers.items()
    }


def test_layers_that_are_all_different_have_no_column_of_how_many_are_alike():
    """A scan over blocks is one layer of which the iterations are alike: "1" would mislead."""
    page = Page(page_of(named(overlapped(MESH, "data", 3), "blocks/mlp")))
    assert page.row("layer") == ["layer", "compute", "communication", "FLOPs"]


@needs_browser
def test_a_real_browser_opens_the_page(tmp_path):
    path = tmp_path / "report.html"
    path.write_text(page_of(overlapped(MESH, "data", 3)))
    document, console = opened(path, tmp_path / "profile")
    assert console == []
    assert document.count("<circle") == 4
    for words in ("Groups on the network", "Streams over time", "Time by layer", "Roofline",
                  "Memory over time", "all-gather"):  # fmt: skip
        assert words in document


@needs_browser
@pytest.mark.parametrize(
    ("workload", "system"),
    [
        (overlapped(MESH, "data", 3), "dgx-h100"),
        (in_layers(overlapped(MESH, "data", 125)), "dgx-h100-superpod"),
        (overlapped(Mesh((8, 16, 16, 8), ("a", "long_name_of_an_axis", "c", "d")), "c"),
         "dgx-h100"),
        (overlapped(Mesh((8, 16, 16, 8), ("a", "b", "c", "d")), "c"), "tpu-v5p-pod"),
        (pipeline(3), "gb200-nvl72"),
    ],
    ids=["64 ranks", "126 layers", "16,384 ranks", "torus", "pipeline"],
)  # fmt: skip
def test_no_text_of_a_drawing_is_cut_or_lies_on_another(tmp_path, workload, system):
    count, found = misplaced(report(workload.simulate(system), record(workload, system)), tmp_path)
    assert count > 20
    assert found == []
