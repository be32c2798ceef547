"""``flint inspect``: its tables, its JSON, its files, its errors."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import networkx as nx
import pytest
from typer.testing import CliRunner, Result

from flint.cli import application
from flint.cli.tables import Printer, Table
from flint.errors import FlintError, UsageError
from flint.host.readable import human_flops

SAVED = Path(__file__).parents[1] / "data" / "stablehlo"


@pytest.fixture
def run() -> object:
    app = application(["inspect"])

    def invoke(*arguments: str | Path) -> Result:
        result = CliRunner().invoke(app, ["inspect", *map(str, arguments)])
        if isinstance(result.exception, FlintError):
            raise result.exception
        assert result.exit_code == 0, result.output
        return result

    return invoke


def test_the_tables_show_ops_collectives_and_loops(run, loop_file: Path) -> None:
    out = run(loop_file, "--mesh", "2,4", "--axes", "data,model").stdout
    assert "mesh data=2 x model=4: 8 ranks, 1 program" in out
    rows = [line.split() for line in out.splitlines()]
    assert ["dot_general", "compute", "5", "2.6", "kFLOP"] in [row[:5] for row in rows]
    assert ["all_reduce", "add", "model", "4", "f32", "5", "5"] in [row[:7] for row in rows]
    assert any(row[1:3] == ["5", "proved"] for row in rows)


def test_in_a_pipe_there_are_neither_colours_nor_boxes_nor_broken_lines(run, loop_file) -> None:
    out = run(loop_file).stdout
    assert out.isascii()
    assert "\x1b" not in out
    assert not any(line != line.rstrip() for line in out.splitlines())


class Terminal(io.StringIO):
    """Text that claims to be a terminal."""

    def isatty(self) -> bool:
        return True


def test_a_narrow_terminal_loses_optional_columns_and_no_text(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = Table("ops", ("op", "?category", ">count", "?work"), [("a" * 40, "b" * 40, "7", "c")])
    shown = {}
    for width in (60, 200):
        monkeypatch.setenv("COLUMNS", str(width))
        out = Terminal()
        Printer(out).table(table)
        shown[width] = out.getvalue()
    assert "a" * 40 in shown[60]
    assert "7" in shown[60]
    assert "b" * 40 not in shown[60]
    assert shown[60].endswith("  not shown, too narrow: category, work\n")
    assert "not shown" not in shown[200]
    assert "b" * 40 in shown[200]
    assert max(map(len, re.sub(r"\x1b\[\d*m", "", shown[60]).splitlines())) <= 60


def test_text_of_the_input_is_neither_markup_nor_control_codes() -> None:
    out = io.StringIO()
    Printer(out).table(Table("ops", ("op",), [("[bold]x[/nope] \x1b]0;title\x07:smile:\ny",)]))
    assert "[bold]x[/nope]  ]0;title :smile: y" in out.getvalue()


def test_json_has_the_exact_numbers(run) -> None:
    result = run(SAVED / "ring_attention_8x8.mlirbc", "--json")
    document = json.loads(result.stdout)
    [program] = document["programs"]
    [kind] = program["collectives_by_kind"]
    assert (kind["count"], kind["operand_bytes"]) == (32, 4194304)
    assert program["flops"] >= program["matmul_flops"] > 0


def test_top_shortens_tables_and_reports_it(run, loop_file: Path) -> None:
    out = run(loop_file, "--top", "1").stdout
    assert "more (--top)" in out


def test_nodes_are_listed_by_path(run, loop_file: Path) -> None:
    document = json.loads(run(loop_file, "--nodes", "--json").stdout)
    [dot] = [node for node in document["nodes"] if node["op"] == "dot_general"]
    assert (dot["times"], dot["flops"], "/" in dot["node"]) == (5, 512, True)
    assert dot["node"] in run(loop_file, "--nodes").stdout


def test_files_are_written_on_demand(run, loop_file: Path, tmp_path: Path) -> None:
    graphml, dot, timeline = (tmp_path / name for name in ("a.graphml", "a.dot", "a.json"))
    run(loop_file, "--graphml", graphml, "--dot", dot, "--perfetto", timeline)
    assert len(nx.read_graphml(graphml)) > 0
    assert dot.read_text().startswith("digraph")
    assert json.loads(timeline.read_text())["traceEvents"]


def test_a_saved_folder_shows_what_its_module_does(run, loop_file, tmp_path) -> None:
    import flint

    flint.convert(loop_file).save(tmp_path / "out")
    from_folder, from_file = run(tmp_path / "out", "--json"), run(loop_file, "--json")
    assert json.loads(from_folder.stdout) == json.loads(from_file.stdout)


def test_kernels_can_be_looked_at(run) -> None:
    path = SAVED / "llama_tiny_scan_fsdp4_tp2.mlirbc"
    ops, kernels = (
        json.loads(run(path, "--json", *more).stdout)["programs"][0]
        for more in ((), ("--granularity", "kernel"))
    )
    assert kernels["nodes"] < ops["nodes"]
    assert kernels["flops"] == ops["flops"]


def test_options_of_a_conversion_are_refused_for_a_folder(run, loop_file, tmp_path) -> None:
    import flint

    flint.convert(loop_file).save(tmp_path / "out")
    with pytest.raises(
        UsageError, match=r"--mesh is for programs: .* is a workload folder, converted already"
    ):
        run(tmp_path / "out", "--mesh", "8")


def test_a_graph_of_several_programs_needs_a_name(run, two_programs, tmp_path) -> None:
    two_programs.save(tmp_path / "out")
    assert "2 programs" in run(tmp_path / "out").stdout
    with pytest.raises(UsageError, match="give --program, one of low, high"):
        run(tmp_path / "out", "--dot", tmp_path / "a.dot")
    out = run(tmp_path / "out", "--dot", tmp_path / "a.dot", "--program", "high").stdout
    assert "program high on 4 ranks (4-7)" in out
    assert "program low" not in out
    assert (tmp_path / "a.dot").read_text().startswith('digraph "high"')


def test_a_folder_of_anything_else_is_an_error(run, tmp_path: Path) -> None:
    with pytest.raises(FlintError, match=r"not a workload folder \(it has no workload.json\)"):
        run(tmp_path)


def test_an_unknown_granularity_is_an_error(run, loop_file: Path) -> None:
    with pytest.raises(UsageError, match="granularity 'tile': choose from op, kernel, region"):
        run(loop_file, "--granularity", "tile")


@pytest.mark.parametrize(
    ("flops", "text"),
    [(0, "0 FLOP"), (999, "999 FLOP"), (1500, "1.5 kFLOP"), (74146167914496, "74.1 TFLOP")],
)
def test_flops_are_shown_in_decimal_units(flops: int, text: str) -> None:
    assert human_flops(flops) == text
