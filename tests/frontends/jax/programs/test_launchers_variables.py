"""Variables of launchers in programs of one process, which ``python`` starts without any."""

from __future__ import annotations

import pytest

from flint.workload.loading import load
from tests.frontends.jax.programs.really_run import instructions, modules, partitioned
from tests.frontends.jax.programs.test_against_runs import command
from tests.support.command_line import flint_with_jax as flint
from tests.support.shared import quick

#: What a program does with such a variable.
READS = {
    "with a default": 'rows = 512 // int(os.environ.get("WORLD_SIZE", "1"))',
    "for another framework": 'import torch; assert "LOCAL_RANK" not in os.environ; rows = 512',
}
PROGRAM = """
import os
import jax, jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec as P
{reads}
mesh = jax.make_mesh((4,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
step = jax.jit(lambda w, x: w - 0.1 * jax.grad(lambda w: jnp.mean((x @ w) ** 2))(w))
w = jax.device_put(jnp.ones((64, 1024)), NamedSharding(mesh, P()))
x = jax.device_put(jnp.ones((rows, 64)), NamedSharding(mesh, P("data")))
for _ in range(4):
    w = step(w, x)
"""


@pytest.mark.parametrize("reads", quick(READS, "with a default"))
def test_a_program_that_looks_for_a_launcher_finds_none(reads, tmp_path, monkeypatch):
    if "import torch" in READS[reads]:
        pytest.importorskip("torch")
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    (tmp_path / "p.py").write_text(PROGRAM.format(reads=READS[reads]))
    run = command(tmp_path / "p.py", devices=4, per_node=4, options=("-o", tmp_path / "out"))
    assert run.returncode == 0, run.stderr
    assert "p.py:5 looks for a launcher's variables" in " ".join(run.stderr.split())
    [(name, module)] = modules(load(tmp_path / "out"))
    real = {
        key.strip("_<>"): one
        for key, one in partitioned(tmp_path / "p.py", tmp_path, devices=4).items()
    }
    assert instructions(module) == instructions(real[name.strip("<>")])


@pytest.mark.thorough
def test_a_program_that_copies_all_variables_does_not_look_for_a_launcher(tmp_path):
    """Nor does one that asks where an array lies, for which a process of Flint's copies them."""
    reads = "all = os.environ.copy(); everything = {**os.environ}; rows = 512"
    (tmp_path / "p.py").write_text(PROGRAM.format(reads=reads) + "    print(w.sharding)\n")
    run = command(tmp_path / "p.py", devices=4, per_node=4, options=("-o", tmp_path / "out"))
    assert run.returncode == 0, run.stderr
    assert "launcher" not in run.stderr


@pytest.mark.thorough
@pytest.mark.parametrize("place", ["main", "helper"])
def test_an_installed_package_that_looks_for_a_launcher_finds_none(place, tmp_path, monkeypatch):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    folder = tmp_path / "site-packages/trainer"
    folder.mkdir(parents=True)
    (folder / "__init__.py").touch()
    looks = PROGRAM.format(reads=READS["with a default"])
    if place == "helper":
        rows = "import os\ndef rows():\n    return 512 // int(os.environ.get('WORLD_SIZE', 1))\n"
        (folder / "helper.py").write_text(rows)
        looks = PROGRAM.format(reads="from trainer.helper import rows; rows = rows()")
    (folder / "__main__.py").write_text(looks)
    monkeypatch.syspath_prepend(folder.parent)
    program = ("-m", "trainer")
    run = flint("run", "--world", 4, "-o", tmp_path / "out", "--", "python", *program)
    assert run.returncode == 0, run.stderr
    [(_, module)] = modules(load(tmp_path / "out"))
    real = partitioned(program[0], tmp_path, *program[1:], devices=4)
    [step] = [
        one for key, one in real.items() if "lambda" in key and "dot" in str(instructions(one))
    ]
    assert instructions(module) == instructions(step)


def test_a_program_that_needs_a_launcher_has_its_variables(tmp_path):
    needs = 'rows = 512 // int(os.environ["WORLD_SIZE"]); assert rows == 128'
    (tmp_path / "p.py").write_text(PROGRAM.format(reads=needs))
    run = command(tmp_path / "p.py", devices=4, per_node=4, options=("-o", tmp_path / "out"))
    assert run.returncode == 0, run.stderr


def test_steps_are_listed_of_the_run_without_them(tmp_path, monkeypatch):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    reads = f"{READS['with a default']}; open({str(tmp_path / 'rows')!r}, 'w').write(str(rows))"
    (tmp_path / "p.py").write_text(PROGRAM.format(reads=reads))
    run = command(tmp_path / "p.py", devices=4, per_node=4, options=("--list-steps",))
    assert run.returncode == 0, run.stderr
    assert (tmp_path / "rows").read_text() == "512"
