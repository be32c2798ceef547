"""Whole programs: the step that is captured is the one that a real run compiles."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

import pytest

from flint.graph.work import Unit
from flint.hlo.messages import parse_module
from flint.models.jax.llama3 import train_tiny
from flint.workload.loading import load
from tests.frontends.jax.programs.really_run import instructions, modules, partitioned
from tests.programs import comparing, results
from tests.support.command_line import flint

PROGRAMS = Path(__file__).parents[3] / "programs" / "jax"

#: What pmap jits: its name in a run, and in a capture, which names the user's function.
OLD = version("jax").startswith("0.8.")
MAPPED, MAPPED_STEP = ("call_wrapped", "call_wrapped") if OLD else ("_fun", "step")

#: Program -> the jitted functions of its step.
STEPS = {
    "optax_loop": ["train_step"],
    "linen_state": ["train_step"],
    "nnx_model": ["train_step"],
    "mapped_processes": ["update"],
    "equinox_loop": ["make_step"],
    "explicit_axes": ["step"],
    "decode_loop": ["decode"],
    "mapped_devices": [MAPPED_STEP],
    "llama_from_config": ["train_step"],
    "adversaries": ["judge_step", "judge_step", "maker_step"],
    "compiled_ahead": ["gradients", "gradients", "gradients", "apply"],
    "threaded_loader": ["step"],
    "folded_constants": ["step"],
}
#: What README's table shows of them: package, what the program is.
SHOWN = {
    "optax_loop": ("optax", "own loop with argparse"),
    "nnx_model": ("flax", "nnx"),
    "linen_state": ("flax", "linen, TrainState"),
    "equinox_loop": ("equinox", "own loop"),
}


def command(program, *arguments, devices=8, per_node=8, options=(), imported="jax"):
    """``flint run``; the program's process is a copy of it."""
    return flint(
        "run", "--world", devices, "--gpus-per-node", per_node, *options, "--", "python", program,
        *arguments, imported=imported,
    )  # fmt: skip


def captured(name, folder, *arguments, devices=8, per_node=8, options=(), imported="jax"):
    """The workload of one of our programs."""
    found = command(
        PROGRAMS / f"{name}.py", *arguments, devices=devices, per_node=per_node,
        options=("--ranks", "0", "-o", folder, *options), imported=imported,
    )  # fmt: skip
    assert found.returncode == 0, found.stderr
    return load(folder)


@pytest.mark.thorough
@pytest.mark.parametrize("name", STEPS)
def test_the_step_is_the_module_that_a_run_compiles(name, tmp_path):
    workload = captured(name, tmp_path / "out", imported=None)
    found = modules(workload)
    assert [function for function, _ in found] == STEPS[name]
    run = partitioned(PROGRAMS / f"{name}.py", tmp_path)
    for function, module in found:
        own = MAPPED if name == "mapped_devices" else function
        assert instructions(module) == instructions(run[own]), function
        assert parse_module(module).name == parse_module(run[own]).name
    if name == "threaded_loader":
        assert any("other threads call" in text and "noisy" in text for text in workload.warnings)
    if name in SHOWN:
        results.record(*SHOWN[name], comparing.of_ranks(workload))


@pytest.mark.thorough
def test_a_training_in_one_call_is_the_module_that_a_run_compiles(tmp_path):
    workload = captured("whole_training", tmp_path / "out", options=("--step", "train:1"))
    [(_, module)] = modules(workload)
    run = partitioned(PROGRAMS / "whole_training.py", tmp_path)
    assert instructions(module) == instructions(run["train"])
    assert any("train is called once" in text for text in workload.warnings)


def test_a_program_of_four_processes_is_captured_as_it_computes_and_communicates(tmp_path):
    """Rows per device: 64 / 8.  Products, each of 8 x 128 x 512: two forward, and backward the
    gradients of both matrices and of what is between them.  Gradients are averaged in float32.
    """
    arguments = "--coordinator", "nobody:1234"
    out = tmp_path / "out"
    workload = captured("mapped_processes", out, *arguments, per_node=2, imported=None)
    assert workload.mesh.axes == ("replica",)
    [program] = workload.programs
    nodes = [node for graph, _ in program.graph.walk() for node in graph]
    products = [i.flops for n in nodes for i in n.work.items if i.unit is Unit.MATMUL]
    assert products == [2 * 8 * 128 * 512] * 5
    sent = [node.communication for node in nodes if node.communication is not None]
    assert {item.kind for item in sent} == {"all_reduce"}
    assert sum(sum(item.operand_bytes) for item in sent) == 2 * 128 * 512 * 4 + 4
    assert {item.role for item in program.inputs} >= {"parameter"}
    assert sum(item.donated >= 0 for item in program.inputs) == 2


@pytest.mark.thorough
def test_a_pmap_of_two_processes_is_the_one_over_the_devices_of_both(tmp_path):
    workload = captured("mapped_devices", tmp_path / "out", per_node=4)
    [(_, module)] = modules(workload)
    run = partitioned(PROGRAMS / "mapped_devices.py", tmp_path)
    assert instructions(module) == instructions(run[MAPPED])


#: Everything is small: all values are known, and none of them may hide the update.
SMALL = """
import jax, jax.numpy as jnp, numpy as np
gradient = jax.jit(jax.grad(lambda w, x: jnp.mean((x @ w) ** 2)))
w = jnp.ones((16, 16))
for _ in range(4):
    w = jax.tree.map(lambda w, g: w - 0.1 * g, w, gradient(w, np.ones((32, 16), np.float32)))
assert not np.array_equal(w, jnp.ones((16, 16)))
"""


def test_an_update_outside_of_jit_is_part_of_the_step_if_all_arrays_are_small(tmp_path):
    (tmp_path / "small.py").write_text(SMALL)
    run = command(tmp_path / "small.py", devices=1, per_node=1, options=("-o", tmp_path / "out"))
    assert run.returncode == 0, run.stderr
    assert "stay unchanged" not in run.stderr
    [program] = load(tmp_path / "out").programs
    step = [call.name.split()[0] for call in program.calls]
    assert step == ["lambda", "multiply", "subtract"]


#: An evaluation that returns its small parameters unchanged, as flax's nnx does, before a training.
EVALUATED = """
import jax, jax.numpy as jnp, numpy as np
x = np.ones((32, 16), np.float32)
@jax.jit
def evaluate(w, x):
    return w, jnp.mean(x @ w)
@jax.jit
def train(w, x):
    return w - 0.1 * jax.grad(lambda w: jnp.mean((x @ w) ** 2))(w)
w = jnp.ones((16, 16))
for _ in range(50):
    w, _ = evaluate(w, x)
for _ in range(4):
    w = train(w, x)
"""


def test_an_evaluation_that_returns_its_small_parameters_is_not_the_training(tmp_path):
    (tmp_path / "p.py").write_text(EVALUATED)
    run = command(tmp_path / "p.py", devices=1, per_node=1, options=("-o", tmp_path / "out"))
    assert run.returncode == 0, run.stderr
    assert load(tmp_path / "out").input["function"] == "train"


#: Frozen weights, sharded, that the step closes over.
CLOSURE = """
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import NamedSharding, PartitionSpec as P
mesh = jax.make_mesh((jax.device_count(),), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
def put(*shape, spec):
    data = np.random.default_rng(0).standard_normal(shape, dtype=np.float32)
    return jax.device_put(data, NamedSharding(mesh, spec))
frozen, w = put(256, 512, spec=P("x")), put(512, 256, spec=P("x"))
def loss(w, x):
    return jnp.mean(jax.lax.scan(lambda x, _: (jnp.tanh(x @ frozen @ w), None), x, length=3)[0])
step = jax.jit(lambda w, x: w - jax.grad(loss)(w, x))
for _ in range(4):
    w = step(w, put(64, 256, spec=P("x")))
"""


@pytest.mark.thorough
def test_arrays_that_a_step_closes_over_are_constants_as_in_a_run(tmp_path):
    (tmp_path / "p.py").write_text(CLOSURE)
    run = command(tmp_path / "p.py", options=("-o", tmp_path / "out"))
    assert run.returncode == 0, run.stderr
    assert "closes over arrays of 512.0 KiB" in run.stderr
    [(_, module)] = modules(load(tmp_path / "out"))
    [real] = partitioned(tmp_path / "p.py", tmp_path).values()
    assert instructions(module) == instructions(real)
    apart = command(tmp_path / "p.py", per_node=4, options=("-o", tmp_path / "apart"))
    assert apart.returncode == 1
    assert "p.py:13: <lambda> closes over" in apart.stderr.splitlines()[-1]


@pytest.mark.thorough
def test_a_models_step_is_the_one_that_is_captured_with_glue(tmp_path):
    """32 devices: the step is lowered on an abstract mesh there, and on the program's own here."""
    found = captured("llama_from_config", tmp_path / "out", "--tensor", "4", devices=32)
    glue = train_tiny.at(mesh=(8, 4)).capture()
    [(_, one)], [(_, other)] = modules(found), modules(glue)
    assert instructions(one) == instructions(other)
    for item, wanted in zip(found.programs[0].inputs, glue.programs[0].inputs, strict=True):
        assert (item.name, item.role, item.type) == (wanted.name, wanted.role, wanted.type)
        assert (item.donated >= 0) == (wanted.donated >= 0)


#: Two functions on an array that states its only device.
ON_ONE = """
import jax, jax.numpy as jnp
place = jax.sharding.SingleDeviceSharding(jax.devices()[0])
w = jax.make_array_from_callback((512, 512), place, lambda index: jnp.zeros((512, 512)))
gradient, update = jax.jit(jax.grad(lambda w: (w @ w).sum())), jax.jit(lambda w, g: w - 0.1 * g)
for _ in range(4):
    w = update(w, gradient(w))
"""


def test_an_array_that_states_its_only_device_is_on_it(tmp_path):
    (tmp_path / "p.py").write_text(ON_ONE)
    out = "-o", tmp_path / "out"
    run = command(tmp_path / "p.py", devices=1, per_node=1, options=out)
    assert run.returncode == 0, run.stderr
    [program] = load(tmp_path / "out").programs
    assert [call.name for call in program.calls] == ["lambda", "lambda_2"]
    # The gradient of w @ w is two products, and w @ w itself is not needed for it.
    products = [i.flops for n in program.graph for i in n.work.items if i.unit is Unit.MATMUL]
    assert products == [2 * 512**3] * 2


#: With a mesh of explicit axes in context, small arrays lie on all of its devices as well.
IN_CONTEXT = """
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import PartitionSpec as P
mesh = jax.make_mesh((4, 1), ("data", "tensor"), axis_types=(jax.sharding.AxisType.Explicit,) * 2)
with jax.set_mesh(mesh):
    scale = jax.sharding.reshard(jnp.zeros(256), P("tensor"))
    w = jax.sharding.reshard(jax.random.normal(jax.random.key(0), (1024, 256)), P("data"))
    moments = [jax.sharding.reshard(jnp.zeros_like(x), jax.typeof(x).sharding) for x in (scale, w)]
    wanted = P("tensor"), P("data", None), P("tensor"), P("data", None)
    assert [x.sharding.spec for x in (scale, w, *moments)] == [*wanted]
    assert jnp.ones(3).sharding.spec == P(None) and (w * 0.5).sharding.spec == P("data", None)
    step = jax.jit(lambda w, s, m, n: (w - 0.1 * w, s + w.sum(0), 0.9 * m + s, 0.9 * n + w))
    for _ in range(4):
        w, scale, *moments = step(w, scale, *moments)
        assert len(scale.sharding.device_set) == 4
"""


@pytest.mark.thorough
def test_arrays_made_with_explicit_axes_in_context_lie_where_they_lie_in_a_run(tmp_path):
    (tmp_path / "p.py").write_text(IN_CONTEXT)
    out = "-o", tmp_path / "out"
    run = command(tmp_path / "p.py", devices=4, per_node=4, options=out)
    assert run.returncode == 0, run.stderr
    [(_, module)] = modules(load(tmp_path / "out"))
    real = partitioned(tmp_path / "p.py", tmp_path, devices=4)  # with the same assertions
    [function] = [name for name in real if "lambda" in name]
    assert instructions(module) == instructions(real[function])
