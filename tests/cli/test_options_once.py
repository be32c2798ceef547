"""Options with one value that are given twice, and numbers that are none."""

from __future__ import annotations

import pytest

from tests.support.command_line import flint, flint_here


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("capture step.py:step --mesh 64,8 --mesh 32,16 -o out", "--mesh is given more than once"),
        ("convert step.mlirbc -o a --output b", "--output is given more than once"),
        ("run --world 2 --world 4 -o out -- python train.py", "--world is given more than once"),
        ("microbench . --framework jax -o k.csv --largest nan", "--largest nan: expected a num"),
        ("capture step.py:step -o out --read-seconds nan", "--read-seconds nan: expected a number"),
    ],
)
def test_a_value_that_would_be_passed_over_is_refused(line, said, tmp_path):
    run = flint_here(*line.split(), cwd=tmp_path)
    assert run.returncode == 2
    assert run.stderr.startswith(f"flint: {said}") and run.stderr.count("\n") == 1


def test_a_flag_may_be_repeated(tmp_path):
    run = flint_here("systems", "dgx-h100", "--json", "--json", cwd=tmp_path)
    assert run.returncode == 0


@pytest.mark.parametrize("dashes", [(), ("--",)], ids=["without --", "with --"])
def test_what_follows_the_program_is_the_programs(tmp_path, dashes):
    (tmp_path / "train.py").write_text("import sys\nsys.exit(' '.join(sys.argv[1:]))\n")
    words = ("python", "train.py", "--world", "3", "--world", "5", "--step", "0")
    run = flint("run", "--world", "2", "-o", "out", *dashes, *words, cwd=tmp_path)
    assert run.returncode == 1
    assert "(--world 3 --world 5 --step 0)" in run.stderr
