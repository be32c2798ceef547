"""``flint convert`` as a user runs it: a process, its files, exit status, one line of error."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.support.command_line import failed, flint, flint_here

DATA = Path(__file__).parent.parent / "data" / "stablehlo"
TINY = DATA / "llama_tiny_scan_fsdp4_tp2.mlirbc"


@pytest.fixture(scope="module")
def converted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("convert") / "out"
    run = flint("convert", TINY, "-o", folder)
    assert run.returncode == 0, run.stderr
    return folder


def test_every_rank_has_a_trace_and_the_simulator_its_files(converted: Path) -> None:
    assert sorted(path.name for path in (converted / "et").glob("*.et")) == sorted(
        f"trace.{rank}.et" for rank in range(8)
    )
    names = {path.name for path in (converted / "astra-sim").iterdir()}
    assert {"system.json", "network.yml", "remote_memory.json", "comm_groups.json"} <= names
    assert (converted / "programs" / "main.mlirbc").read_bytes() == TINY.read_bytes()


def test_what_convert_writes_passes_the_check(converted: Path) -> None:
    run = flint_here("check", converted, cwd=converted)
    assert run.returncode == 0, run.stdout
    assert "consumers can run it" in run.stdout


def test_json_is_the_only_thing_on_stdout(tmp_path: Path) -> None:
    run = flint_here("convert", TINY, "-o", tmp_path / "out", "--json", cwd=tmp_path)
    document = json.loads(run.stdout)
    assert document["ranks"] == 8
    assert document["mesh"] == {"axis_0": 4, "axis_1": 2}


def test_some_ranks_make_a_partial_folder(tmp_path: Path) -> None:
    run = flint_here("convert", TINY, "-o", tmp_path / "out", "--ranks", "0,6-7", cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    assert sorted(path.name for path in (tmp_path / "out/et").glob("*.et")) == [
        "trace.0.et",
        "trace.6.et",
        "trace.7.et",
    ]
    check = flint_here("check", tmp_path / "out", cwd=tmp_path)
    assert check.returncode == 0
    assert "not checked" in check.stdout


def test_a_second_run_replaces_the_folder(tmp_path: Path) -> None:
    for granularity in ("op", "region"):
        run = flint_here(
            "convert", TINY, "-o", tmp_path / "out", "--granularity", granularity, cwd=tmp_path
        )
        assert run.returncode == 0, run.stderr
    assert json.loads((tmp_path / "out/workload.json").read_text())["granularity"] == "region"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("important")
    line = failed(flint_here("convert", TINY, "-o", tmp_path, cwd=tmp_path), 2)
    assert "does not overwrite it" in line
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (("convert", "absent.mlir", "-o", "out"), 2, "no such file"),
        (("convert", TINY, "-o", "out", "--mesh", "3,3"), 2, "module is for 8"),
        (("convert", TINY, "-o", "out", "--mesh", "4,two"), 2, "--mesh"),
        (("convert", TINY, "-o", "out", "--mesh", "8,x"), 2, "--mesh '8,x': expected sizes"),
        (("convert", TINY, "-o", "out", "--mesh", "4,,2"), 2, "--mesh '4,,2': expected sizes"),
        (("convert", TINY, "-o", "out", "--mesh", "4,2", "--axes", "a"), 2, "2 axes"),
        (("convert", TINY, "-o", "out", "--ranks", "0-8"), 2, "0 to 7"),
        (("convert", TINY, "-o", "out", "--ranks", "some"), 2, "--ranks"),
        (("convert", TINY, "-o", "out", "--granularity", "warp"), 2, "granularity"),
        (("convert", TINY, "-o", "out", "--system", "abacus"), 2, "abacus"),
        (("convert", TINY, "-o", "out", "--trip-count", "many"), 2, "--trip-count"),
        (("convert", TINY, "-o", "out", "--loop-lookahead", "-1"), 2, "--loop-lookahead"),
        (("convert", TINY), 2, "--output"),
        (("convert", DATA / "while_dynamic_8x8.mlirbc", "-o", "out"), 1, "--trip-count"),
        (("convert", DATA / "cond_8x8.mlirbc", "-o", "out"), 1, "--branch"),
        (("convert", DATA / "README.md", "-o", "out"), 1, "README.md"),
        (("check", "absent"), 2, "absent"),
        (("inspect", "absent"), 2, "absent: no such file"),
        (("simulate", "absent"), 2, "absent: no such file"),
        (("diff", "absent", "gone"), 2, "absent: no such file"),
        (("validate", "absent", "--trace", TINY), 2, "absent: no such file"),
        (("convert", TINY, "--et", "absent", "-o", "out"), 2, "absent: no such file"),
        (("convert", TINY, "absent", "-o", "out"), 2, "absent: no such file"),
        (("conjure",), 2, "conjure"),
    ],
)
def test_bad_input_is_one_line(
    arguments: tuple[object, ...], status: int, words: str, tmp_path: Path
) -> None:
    assert words in failed(flint_here(*arguments, cwd=tmp_path), status)
    assert list(tmp_path.iterdir()) == []


def test_debug_shows_the_traceback(tmp_path: Path) -> None:
    run = flint("--debug", "convert", "absent.mlir", "-o", "out", cwd=tmp_path)
    assert run.returncode == 2
    assert "Traceback" in run.stderr


@pytest.mark.parametrize("kept", [0, 1, 100, 5000])
def test_a_truncated_module_is_one_line(kept: int, tmp_path: Path) -> None:
    path = tmp_path / "cut.mlirbc"
    path.write_bytes(TINY.read_bytes()[:kept])
    run = flint_here("convert", path, "-o", tmp_path / "out", cwd=tmp_path)
    assert "cut.mlirbc" in failed(run, 1)
    assert not (tmp_path / "out").exists()


def test_gzip_is_looked_through(tmp_path: Path) -> None:
    import gzip

    path = tmp_path / "module"
    path.write_bytes(gzip.compress(TINY.read_bytes()))
    assert flint_here("convert", path, "-o", tmp_path / "out", cwd=tmp_path).returncode == 0


def test_a_read_only_place_is_one_line(tmp_path: Path) -> None:
    line = failed(flint_here("convert", TINY, "-o", "/proc/flint/out", cwd=tmp_path), 1)
    assert "/proc/flint" in line


def test_no_module_writes_outside_its_folder(converted: Path) -> None:
    assert not [path for path in converted.parent.iterdir() if path != converted]
    assert os.access(converted / "workload.json", os.R_OK)


def test_much_is_announced_and_little_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from flint.cli import main, saving

    def said(name: str) -> str:
        with pytest.raises(SystemExit, match="0"):
            main(["convert", str(TINY), "-o", str(tmp_path / name)])
        return capsys.readouterr().err

    assert said("little") == ""
    monkeypatch.setattr(saving, "_MUCH", 1000)
    assert said("much").startswith("flint: writing 8 traces, ")


def test_of_a_folder_of_programs_one_is_asked_for(tmp_path):
    (tmp_path / "dump").mkdir()
    for name, size in (
        ("module_0001.jit_step.before_optimizations.txt", 30),
        ("module_0001.jit_step.cpu_after_optimizations.hlo.pb", 20),
        ("module_0001.jit_step.ir-with-opt.ll", 90),
    ):
        (tmp_path / "dump" / name).write_bytes(bytes(size))
    done = flint_here("convert", "dump", "-o", "out", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (
        2,
        "flint: dump: a folder of 2 saved programs: give one of them, for example the largest, "
        "dump/module_0001.jit_step.before_optimizations.txt\n",
    )


def test_an_empty_execution_trace_is_named(tmp_path):
    (tmp_path / "traces").mkdir()
    (tmp_path / "traces/trace.0.et").write_bytes(b"")
    done = flint_here("convert", "traces", "-o", "out", cwd=tmp_path)
    assert done.returncode == 1
    assert "traces/trace.0.et: the file is empty" in done.stderr
