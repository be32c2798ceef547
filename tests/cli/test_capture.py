"""``flint capture`` as a user runs it: a process, its files, exit status, one line of error.

Longer than 300 lines because all its tests take the same small file of the user.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from flint.workload.loading import load
from tests.support.children import HUNG
from tests.support.command_line import failed, flint_here
from tests.support.command_line import flint_with_jax as flint
from tests.support.shared import quick, quick_rows

HERE = Path(__file__).parents[1] / "frontends" / "jax"
STEPS = HERE / "steps.py"

USERS_FILE = """\
import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec as P


def setup(mesh):
    return (jax.ShapeDtypeStruct((64, 32), jnp.float32, sharding=NamedSharding(mesh, P("data"))),)


def good(x):
    print("tracing")
    return x.sum()


def branches(x):
    if x.sum() > 0:
        return x
    return -x


def unbounded(x):
    return jax.lax.while_loop(lambda c: jnp.sum(c) > 1e-3, lambda c: c * 0.5, x)


def mismatched(x):
    return x @ x


def fails(x):
    raise KeyError("q")


def elsewhere(x):
    return jax.lax.with_sharding_constraint(x, P("expert"))


def broken_setup(mesh):
    return 1 / 0


def leaves(x):
    raise SystemExit(3)


def interrupted(x):
    raise KeyboardInterrupt


number = 3
"""

OWN_MESH = """\
import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import mesh_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

mesh = Mesh(np.array(jax.devices()).reshape(-1, 2), ("data", "model"))
jax.set_mesh(mesh)


def setup(_):
    over_data = NamedSharding(mesh, P("data"))
    return (jax.ShapeDtypeStruct((16384, 64), jnp.float32, sharding=over_data),)


@jax.jit
def step(x):
    y = jax.lax.with_sharding_constraint(jnp.sin(x), NamedSharding(mesh, P("data", "model")))
    return jax.lax.with_sharding_constraint(y, P("data")).sum()


@jax.jit
def mapped(x):
    part = jax.shard_map(
        lambda x: jax.lax.psum(x @ x.T, "model"), mesh=mesh, in_specs=P("data", "model"),
        out_specs=P("data"),
    )
    return jax.lax.with_sharding_constraint(part(x), NamedSharding(mesh, P("data")))


def of_slices(_):
    devices = mesh_utils.create_hybrid_device_mesh((len(jax.devices()) // 4, 2), (2, 1))
    over_data = NamedSharding(Mesh(devices, ("data", "model")), P("data"))
    return (jax.ShapeDtypeStruct((16384, 64), jnp.float32, sharding=over_data),)


def elsewhere(x):
    other = Mesh(mesh.devices, ("rows", "columns"))
    return jax.shard_map(jnp.sin, mesh=other, in_specs=P("rows"), out_specs=P("rows"))(x)


def per_device(x):
    return jax.pmap(jnp.sin)(x)


each = jax.pmap(jnp.sin)


def backwards(x):
    other = Mesh(mesh.devices[::-1], ("data", "model"))
    return jax.shard_map(jnp.sin, mesh=other, in_specs=P("data"), out_specs=P("data"))(x)


def swapped(x):
    other = Mesh(np.array(jax.devices()).reshape(2, 2).T, ("data", "model"))
    return jax.jit(
        jax.shard_map(jnp.sin, mesh=other, in_specs=P("data"), out_specs=P("data"))
    )(x)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("user")
    (folder / "train.py").write_text(USERS_FILE)
    (folder / "own.py").write_text(OWN_MESH)
    (folder / "missing.py").write_text("import os\nimport a_module_that_is_not_there\n")
    (folder / "syntax.py").write_text("x = 1\ndef f(:\n")
    (folder / "leaves.py").write_text("raise SystemExit('usage: ...')\n")
    return folder


def test_a_decorated_step_becomes_traces_that_consumers_can_run(tmp_path):
    run = flint("capture", STEPS.name + ":scan", "-o", tmp_path / "out", cwd=HERE)
    assert run.returncode == 0, run.stderr
    assert len(list((tmp_path / "out" / "et").glob("*.et"))) == 8
    checked = flint_here("check", tmp_path / "out", cwd=tmp_path)
    assert checked.returncode == 0, checked.stdout
    assert "consumers can run it" in checked.stdout


def test_a_plain_function_takes_mesh_axes_and_setup_from_the_command(folder, tmp_path):
    run = flint(
        "capture", "train.py:good", "--setup", "setup", "--mesh", "16,2", "--axes", "data,model",
        "-o", tmp_path / "out", "--json", cwd=folder,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    document = json.loads(run.stdout)  # what the user's code prints is not in it
    assert document["mesh"] == {"data": 16, "model": 2}
    assert document["ranks"] == 32
    assert "tracing" in run.stderr


def test_the_mesh_of_the_command_goes_before_the_decorators(tmp_path):
    run = flint(
        "capture", "steps.py:mlp", "--mesh", "16,4", "--ranks", "0-3", "--json",
        "-o", tmp_path / "out", cwd=HERE,
    )  # fmt: skip
    assert json.loads(run.stdout)["mesh"] == {"data": 16, "model": 4}


@pytest.mark.parametrize(
    ("step", "said"), [("mlp", "the logical program"), ("skipping", "4 logical programs")]
)
def test_the_logical_level_writes_programs_without_traces(step, said, tmp_path):
    """Ranks of ``skipping`` do four different things."""
    out = tmp_path / "out"
    run = flint("capture", f"steps.py:{step}", "--level", "logical", "-o", out, cwd=HERE)
    assert run.returncode == 0, run.stderr
    assert f"{said}, " in run.stdout
    assert not (tmp_path / "out" / "et").exists()
    looked_at = flint_here("inspect", out, cwd=tmp_path).stdout
    assert "logical program" in looked_at
    assert "global shapes" in looked_at and "per rank" not in looked_at
    assert "in total" not in looked_at  # global shapes are not work of each rank
    data = json.loads(flint_here("inspect", out, "--json", cwd=tmp_path).stdout)
    assert data["cluster_flops"] is None
    for command in (
        ("diff", out, out),
        ("explain", out),
        ("inspect", out, "--scale-sim", "sizes", "--system", "tpu-v4-pod"),
        ("microbench", out, "--framework", "jax", "-o", "k.csv"),
    ):
        done = flint_here(*command, cwd=tmp_path)
        assert done.returncode == 2 and "the program is not partitioned" in done.stderr


@pytest.mark.parametrize("mesh", quick(["4,2", "32,2", "8192,2"], "32,2"))
def test_code_that_builds_its_own_mesh_finds_that_many_devices(mesh, folder, tmp_path):
    run = flint(
        "capture", "own.py:step", "--setup", "setup", "--mesh", mesh, "--ranks", "0",
        "--json", "-o", tmp_path / "out", cwd=folder,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    assert list(json.loads(run.stdout)["mesh"]) == ["data", "model"]


def test_a_mesh_of_slices_is_built_as_on_the_cluster_and_reported(folder, tmp_path):
    run = flint(
        "capture", "own.py:step", "--setup", "of_slices", "--mesh", "4,2", "--ranks", "0",
        "-o", tmp_path / "out", cwd=folder,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    assert "the devices form 2 slices, as in the mesh at own.py:" in run.stdout + run.stderr


@pytest.mark.parametrize("mesh", [(4, 2), (4096, 4)])
def test_a_shard_map_over_a_mesh_of_its_own_devices_is_over_the_captures(mesh, folder, tmp_path):
    # Each has its own file: Python takes a file of the same size and second for the compiled one.
    program = f"own_axes_{mesh[1]}.py"
    (folder / program).write_text(OWN_MESH.replace("(-1, 2)", f"(-1, {mesh[1]})"))
    run = flint(
        "capture", f"{program}:mapped", "--setup", "setup", "--mesh", f"{mesh[0]},{mesh[1]}",
        "--ranks", "0", "--granularity", "op", "-o", tmp_path / "out", cwd=folder,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    [program] = load(tmp_path / "out").programs
    [reduced] = [node for node in program.graph if node.communication is not None]
    assert reduced.communication.kind == "all_reduce"
    assert reduced.communication.groups.table()[0].tolist() == list(range(mesh[1]))
    rows = 16384 // mesh[0]  # a rank's rows times all of its rows
    assert reduced.communication.operand_bytes == (rows * rows * 4,)


ELSEWHERE = [
    ("elsewhere", "elsewhere maps over a mesh other than the capture's"),
    ("per_device", "jax.pmap has its own"),
    ("each", "jax.pmap maps over the devices of one process"),
    ("backwards", "shard_map uses a mesh whose device order differs from jax.devices()"),
    ("swapped", "shard_map uses a mesh whose device order differs from jax.devices()"),
]


@pytest.mark.parametrize(("step", "said"), quick_rows(ELSEWHERE, ELSEWHERE[0], ELSEWHERE[2]))
def test_maps_over_other_meshes_are_one_line(step, said, folder, tmp_path):
    run = flint(
        "capture", f"own.py:{step}", "--setup", "setup", "--mesh", "2,2", "-o", tmp_path / "out",
        cwd=folder,
    )  # fmt: skip
    assert said in failed(run, 2)


def test_another_trip_count_is_another_capture(folder, tmp_path):
    for count in (3, 7):
        run = flint(
            "capture", "train.py:unbounded", "--setup", "setup", "--mesh", "4", "--axes", "data",
            "--trip-count", count, "--granularity", "op", "-o", tmp_path / str(count), cwd=folder,
        )  # fmt: skip
        assert run.returncode == 0, run.stderr
    looked_at = [
        flint_here("inspect", tmp_path / str(count), "--json", cwd=tmp_path).stdout
        for count in (3, 7)
    ]
    assert all(json.loads(text) for text in looked_at)
    assert looked_at[0] != looked_at[1]


COMMON = ("--mesh", "4,2", "--axes", "data,model", "--setup", "setup")


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (("nowhere.py:f",), 2, "nowhere.py: no such file"),
        (("train.py:absent", *COMMON), 2, "no function 'absent'; the file has: setup, good"),
        (("train.py", *COMMON), 2, "names no function (FILE.py:FUNCTION); the file has: setup"),
        (("train.py:number", *COMMON), 2, "train.py:number is int, not a function"),
        (("train.py:good",), 2, "not decorated with flint.capture: give --mesh"),
        (("train.py:good", "--mesh", "4,2"), 2, "good takes arguments"),
        (("train.py:good", "--mesh", "4", "--setup", "nothing"), 2, "--setup nothing: no such"),
        (("train.py:good", "--mesh", "4", "--setup", "setup"), 2, "name the axes (--axes)"),
        (("train.py:good", *COMMON[:2], "--axes", "data"), 2,
         "has 2 axes, but the names are ('data',)"),
        (("train.py:good", *COMMON[2:], "--mesh", "5,2"), 2,
         "argument x has the shape (64, 32): the mesh axis data of 5 devices does not divide its "
         "dim 0 of size 64"),
        (("train.py:good", *COMMON, "--level", "final"), 2, "unknown level"),
        (("train.py:good", *COMMON, "--target", "h100"), 2, "target 'h100'"),
        (("train.py:good", *COMMON, "--time-limit", "0.001"), 1, "more than 0.001 s"),
        (("train.py:good", *COMMON, "--memory-limit", "0.001"), 1, "raise the memory limit"),
        (("train.py:branches", *COMMON), 1,
         "train.py:16: branches branches on the value of a traced array"),
        (("train.py:unbounded", *COMMON), 1, "train.py:22) depends on data"),
        (("train.py:mismatched", *COMMON), 1, "train.py:26: mismatched cannot be traced"),
        (("train.py:fails", *COMMON), 1, "train.py:30: fails cannot be traced: KeyError: 'q'"),
        (("train.py:elsewhere", *COMMON), 1, "train.py:34: elsewhere cannot be traced"),
        (("train.py:good", *COMMON[:4], "--setup", "broken_setup"), 1,
         "train.py:38: broken_setup cannot make arguments: ZeroDivisionError"),
        (("train.py:leaves", *COMMON), 1, "exited the process at train.py:42 (SystemExit: 3)"),
        (("train.py:interrupted", *COMMON), 130, "flint: interrupted"),
        (("missing.py:f", *COMMON), 1, "missing.py:2: the file cannot be imported: ModuleNotFound"),
        (("syntax.py:f", *COMMON), 1, "syntax.py:2: the file cannot be imported: SyntaxError"),
        (("leaves.py:f", *COMMON), 1, "leaves.py:1: the file cannot be imported: SystemExit"),
    ],
)  # fmt: skip
def test_bad_input_is_one_line(arguments, status, said, folder, tmp_path):
    run = flint_here("capture", *arguments, "-o", tmp_path / "out", cwd=folder)
    assert said in failed(run, status)
    assert list(tmp_path.iterdir()) == []


def test_another_version_of_jax_is_named_before_its_private_parts_are_imported(folder, tmp_path):
    code = (
        "import sys\n"
        "from flint.host import environment\n"
        "found = environment.installed_version\n"
        "tried = lambda name: '0.13.9' if name == 'jax' else found(name)\n"
        "environment.installed_version = tried\n"
        "for part in 'host_calls', 'partitioning_rules', 'platform_forms':\n"
        "    sys.modules[f'flint.frontends.jax.internals.{part}'] = None  # whose import fails\n"
        "from flint.cli import main\n"
        f"main(['capture', 'train.py:good', '--mesh', '4', '-o', {str(tmp_path / 'out')!r}])\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True, text=True, cwd=folder, timeout=HUNG, check=False,
    )  # fmt: skip
    assert run.returncode == 1
    assert "jax 0.13.9 is installed" in run.stderr
    assert ">=0.8.3,<0.13" in run.stderr
    assert len(run.stderr.strip().splitlines()) == 1
