"""Programs whose command varies: the commands, their names, and what their captures depend on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flint.errors import UsageError
from flint.sweeps.description import Sweep
from flint.sweeps.points import Point, points
from flint.sweeps.varied import commands_of, left_open, values_of
from tests.support.command_line import flint_here, flint_with_jax


def test_every_combination_has_a_command() -> None:
    program = ["python", "train.py", "--tp={tp}", "--mesh={dp}x{tp}"]
    assert commands_of(program, {"tp": ["1", "8"], "dp": ["4"]}) == {
        "tp=1 dp=4": ("python", "train.py", "--tp=1", "--mesh=4x1"),
        "tp=8 dp=4": ("python", "train.py", "--tp=8", "--mesh=4x8"),
    }


def test_other_braces_and_braces_in_values_stay() -> None:
    program = ["train.py", '{"lr": {lr}}', "{other}"]
    assert list(commands_of(program, {"lr": ["{other}"]}).values()) == [
        ("train.py", '{"lr": {other}}', "{other}")
    ]


def test_a_program_of_which_nothing_varies_is_named_by_its_command() -> None:
    assert commands_of(["python", "my train.py"], {}) == {
        "python 'my train.py'": ("python", "my train.py")
    }


def test_values_of_one_name_belong_together() -> None:
    assert values_of(["tp=1, 2", "pp=4", "tp=2,8"]) == {"tp": ("1", "2", "8"), "pp": ("4",)}


@pytest.mark.parametrize("text", ["tp", "tp=", "tp=1,,2", "=1", "1tp=3", "t p=3"])
def test_other_forms_of_values_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="expected NAME=VALUE,VALUE"):
        values_of([text])


def test_a_name_that_the_command_does_not_have_is_refused() -> None:
    with pytest.raises(UsageError, match=r"--vary pp: the program's command has no {pp}"):
        commands_of(["train.py", "--tp={tp}"], {"tp": ["1"], "pp": ["2"]})


def test_names_without_values_are_told() -> None:
    words = ["train.py", "--tp={tp}", '{"lr": 1}', "--run={tp}-{model}"]
    assert left_open(words, {"model": ["a"]}) == ["tp"]


def captured(folder: Path, *words: str, **values: tuple[str, ...]) -> dict[str, Point]:
    found = points(
        Sweep(
            (), ("2", "4"), ("dgx-h100",), folder / "out", program=words,
            varied=tuple(values.items()),
        )
    )  # fmt: skip
    return {f"{point.step} on {point.mesh_text}": point for point in found}


def test_a_capture_of_a_program_depends_on_command_size_files_and_variables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("train.py", "pkg/__init__.py", "pkg/job.py", "small.toml", "pkg/sizes.py"):
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_text("from pkg import sizes\n" if name.endswith("job.py") else "")
    commands = (
        ("python", "train.py", "--n={n}"),
        ("python", "-m", "pkg.job", "--config=small.toml", "{n}"),
    )

    def keys() -> list[set[Path]]:
        return [
            {point.workload for point in captured(tmp_path, *words, n=("1", "2")).values()}
            for words in commands
        ]

    first = keys()
    assert [len(found) for found in first] == [4, 4]
    for name, changed in (("train.py", 0), ("small.toml", 1), ("pkg/sizes.py", 1)):
        before = keys()
        Path(name).write_text("WIDTH = 7\n")
        after = keys()
        assert before[changed].isdisjoint(after[changed])
        assert before[1 - changed] == after[1 - changed]
    before = keys()
    monkeypatch.setenv("SHLVL", "7")
    monkeypatch.setenv("_", "/usr/bin/timeout")
    assert keys() == before
    monkeypatch.setenv("MODEL_SIZE", "8b")
    assert keys()[0].isdisjoint(before[0])


@pytest.mark.parametrize(
    ("words", "changed"),
    [
        (("python", "-m", "pkg"), "pkg/__main__.py"),
        (("python", "-m", "pkg"), "pkg/sizes.py"),
        (("bash", "jobs/run.sh"), "train.py"),
        (("bash", "jobs/run.sh"), "pkg/sizes.py"),
        (("bash", "jobs/run.sh"), "conf/deepspeed.json"),
        (("python", "train.py"), "conf/model.yaml"),
        (("python", "train.py"), "sizes/of-all.yaml"),  # the configuration names it
        (("python", "composed.py"), "config/model/small.yaml"),  # Hydra's folder
        (("python", "train.py", "--config-dir", "config"), "config/main.yaml"),
    ],
)
def test_a_capture_of_a_program_depends_on_what_its_script_and_code_name(
    words: tuple[str, ...], changed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    files = {
        "pkg/__init__.py": "", "pkg/__main__.py": "from . import sizes\n", "pkg/sizes.py": "",
        "train.py": "import pkg.sizes\nopen('conf/model.yaml')\n",
        "conf/model.yaml": "width: 8\nothers: [sizes/of-all.yaml, x]\n",
        "conf/deepspeed.json": "{}", "sizes/of-all.yaml": "depth: 2\n",
        "composed.py": 'import hydra\n@hydra.main("config", "main")\ndef main(found): ...\n',
        "config/main.yaml": "defaults: [{model: small}]\n", "config/model/small.yaml": "width: 8",
        "jobs/run.sh": 'cd "$HERE"\ntorchrun "$HERE"/../train.py --config="conf/deepspeed.json"\n'
        "python train.py\n",
    }  # fmt: skip
    for name, text in files.items():
        Path(name).parent.mkdir(exist_ok=True, parents=True)
        Path(name).write_text(text)

    def keys() -> set[Path]:
        return {point.workload for point in captured(tmp_path, *words).values()}

    before = keys()
    assert keys() == before
    Path(changed).write_text(files[changed] + "\n")
    assert keys().isdisjoint(before)


#: One product of [16, width] and [width, width] for each of two data-parallel devices; forward, and
#: the weights' gradient.
PROGRAM = """
import sys
import jax
from jax.sharding import NamedSharding, PartitionSpec as P

width = int(sys.argv[1].removeprefix("--width="))
mesh = jax.make_mesh((jax.device_count(),), ("data",))
step = jax.jit(jax.value_and_grad(lambda w, x: (x @ w).sum()))
w = jax.device_put(jax.numpy.ones((width, width)), NamedSharding(mesh, P()))
x = jax.device_put(
    jax.numpy.ones((16 * jax.device_count(), width)), NamedSharding(mesh, P("data"))
)
assert width < 1000, "too wide"
for _ in range(3):
    loss, gradient = step(w, x)
"""


def test_a_program_is_swept_over_sizes_and_values(tmp_path: Path) -> None:
    """The sum's gradient is a product, too: 2 x 2 x 16 x width x width FLOPs on each device.  What
    else a device does is less than a hundredth of it.
    """
    (tmp_path / "train.py").write_text(PROGRAM)
    done = flint_with_jax(
        "sweep", "--world", 2, "--vary", "width=256,1000", "-o", "out", "--json",
        "--gpus-per-node", 2, "--", "python", "train.py", "--width={width}", cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows = {(row["step"], row["mesh"]): row for row in json.loads(done.stdout)["rows"]}
    assert list(rows) == [("width=256", "2"), ("width=1000", "2")]
    for (step, world), row in rows.items():
        width = int(step.removeprefix("width="))
        if width == 1000:
            assert "train.py:" in row["error"] and "too wide" in row["error"]
        else:
            assert row["flops"] == pytest.approx(int(world) * 4 * 16 * width**2, rel=0.01)


def refusal(*arguments: str, cwd: Path) -> str:
    done = flint_here("sweep", "-o", "out", *arguments, cwd=cwd)
    assert done.returncode == 2
    return done.stderr.strip()


def test_options_for_programs_and_for_steps_are_not_mixed(tmp_path: Path) -> None:
    step = ("step.py:f", "--mesh", "2")
    program = ("--world", "2", "--", "train.py")
    assert refusal(*step, "--vary", "n=1", "--fake-data", cwd=tmp_path) == (
        "flint: --fake-data, --vary are for a program, which needs --world"
    )
    assert refusal("--mesh", "2", *program, cwd=tmp_path) == (
        "flint: --mesh is for steps; --world sweeps over a whole program"
    )
    (tmp_path / "step.py").touch()
    assert refusal("step.py:f", cwd=tmp_path) == (
        "flint: step.py:f: no size: give --mesh, or --world for a program"
    )
