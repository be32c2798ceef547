"""Programs without a step, and what programs do besides it: checkpoints, reads of values."""

from __future__ import annotations

import json
import re

import pytest

from flint.workload.loading import load
from tests.frontends.jax.programs.really_run import instructions, modules, partitioned
from tests.frontends.jax.programs.test_against_runs import PROGRAMS, captured, command
from tests.support.shared import quick_rows

UNTIL_SMALL = """
import jax, jax.numpy as jnp
from jax.sharding import PartitionSpec as P
jax.set_mesh(jax.make_mesh((4,), ("x",), axis_types=(jax.sharding.AxisType.Auto,)))
@jax.jit
def train(w):
    return 0.9 * w, w.sum()
w, loss = jax.device_put(jnp.ones((512, 512)), P("x")), jnp.inf
while loss > 1e-3:
    w, loss = train(w)
"""
ENDS_ANYWAY = UNTIL_SMALL + "    if float(loss):\n        break\n"
#: Without gradients, as by evolution; the host reads a file of its own afterwards.
EVOLVES = """
import jax, jax.numpy as jnp
from jax.sharding import PartitionSpec as P
jax.set_mesh(jax.make_mesh((4,), ("x",), axis_types=(jax.sharding.AxisType.Auto,)))
@jax.jit
def evolve(w):
    return w - 0.1 * jnp.sign(w)
w = jax.device_put(jnp.ones((512, 512)), P("x"))
for _ in range(5):
    w = evolve(w)
open("best.npz")
"""
ENDS = [
    (EVOLVES, r"p\.py:11: .*best\.npz.* before that it called evolve at .*p\.py:10, 5 times"),
    ("import jax\njax.jit(lambda x: x * 2)(jax.numpy.ones(3))\n", "ended before its step ran 2"),
    (
        "import jax\nw = jax.numpy.ones(3)\nfor _ in range(4):\n    w = w - jax.grad(sum)(w)\n",
        r"no step was seen; a step is a jitted function .*put yours into jax\.jit",
    ),
    ("import jax\nraise SystemExit('no data')\n", r"p\.py:2.*no data"),
    ("import jax\nname = input()\n", r"p\.py:2: .*it waits for input"),
    ("import jax\nopen('weights.npz')\n", r"p\.py:2: .*weights\.npz"),
    (ENDS_ANYWAY, r"may have ended it: .*the value of a float is read at .*p\.py:11: .*500 \(1 t"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "said"), quick_rows(ENDS, ENDS[0]))
def test_a_program_that_ends_before_its_step_is_one_line_with_its_own(text, said, tmp_path):
    (tmp_path / "p.py").write_text(text)
    run = command(tmp_path / "p.py", devices=4, per_node=4, options=("-o", tmp_path / "out"))
    assert run.returncode == 1
    assert re.search(said, run.stderr.splitlines()[-1]), run.stderr
    assert not (tmp_path / "out").exists()


def test_a_failing_program_lists_the_steps_that_it_ran_before(tmp_path):
    (tmp_path / "p.py").write_text(EVOLVES)
    run = command(tmp_path / "p.py", devices=4, per_node=4, options=("--list-steps", "--json"))
    assert run.returncode == 0, run.stderr
    [step] = json.loads(run.stdout)["steps"]
    assert (step["name"], step["count"]) == ("evolve", 5)
    assert re.search(r"warning: .*p\.py:11: the program failed: .*best\.npz", run.stderr)


@pytest.mark.thorough
def test_a_training_until_a_tolerance_is_the_module_that_a_run_compiles(tmp_path):
    (tmp_path / "p.py").write_text(UNTIL_SMALL)
    run = command(tmp_path / "p.py", devices=4, per_node=4, options=("-o", tmp_path / "out"))
    assert run.returncode == 0, run.stderr
    assert re.search(r"a bool is read at .*p\.py:9: assumed to be True, so that", run.stderr)
    found = dict(modules(load(tmp_path / "out")))
    real = partitioned(tmp_path / "p.py", tmp_path, devices=4)
    assert instructions(found["train"]) == instructions(real["train"])


TWO_MESHES = """
import contextlib, jax, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
def some(x):
    return jax.lax.cond(jax.lax.axis_index("x") == 0, lambda x: x * 2, lambda x: x, x)
meshes = [Mesh(jax.devices()[n : n + 2], ("x",)) for n in (0, 2)]
spec = P("x")
first, last = [jax.jit(jax.shard_map(some, mesh=m, in_specs=spec, out_specs=spec)) for m in meshes]
one, other = [jax.device_put(np.ones(8), NamedSharding(mesh, spec)) for mesh in meshes]
with contextlib.suppress(BaseException):
    for _ in range(4):
        one, other = first(one), last(other)
first(one)
"""


@pytest.mark.thorough
def test_what_stops_a_capture_is_reported_whatever_the_program_catches(tmp_path):
    (tmp_path / "p.py").write_text(TWO_MESHES)
    run = command(tmp_path / "p.py", devices=4, per_node=4, options=("-o", tmp_path / "out"))
    assert run.returncode == 1
    assert "a conditional that depends on the device" in run.stderr.splitlines()[-1]


@pytest.mark.thorough
def test_a_device_that_jax_programs_cannot_have_is_refused(tmp_path):
    (tmp_path / "p.py").write_text("import jax")
    options = "--device", "mi300x", "-o", tmp_path / "out"
    run = command(tmp_path / "p.py", devices=4, per_node=4, options=options)
    assert (run.returncode, "for JAX programs, choose from h100" in run.stderr) == (2, True)


KERNEL = """
import jax, jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton
from jax.sharding import PartitionSpec as P
mesh = jax.make_mesh((jax.device_count(),), ("x",))
jax.set_mesh(mesh)
def doubled(x_ref, o_ref):
    o_ref[...] = 2 * x_ref[...]
def part(x):
    device = jax.devices()[0]
    assert (device.compute_capability, device.core_count) == ("10.0", 148)
    return pl.pallas_call(doubled, jax.typeof(x), compiler_params=triton.CompilerParams())(x)
step = jax.jit(jax.shard_map(part, in_specs=P("x"), out_specs=P("x"), check_vma=False))
x = jax.device_put(jnp.ones((128, 128)), P("x"))
for _ in range(3):
    x = step(x)
"""


@pytest.mark.thorough
def test_a_kernel_for_gpus_is_lowered_for_the_programs_device(tmp_path):
    (tmp_path / "p.py").write_text(KERNEL)
    options = "--device", "b200", "--granularity", "op", "-o", tmp_path / "out"
    run = command(tmp_path / "p.py", devices=4, per_node=4, options=options)
    assert run.returncode == 0, run.stderr
    assert "lowered for cuda" in run.stderr
    assert "durations for dgx-b200" in run.stderr + run.stdout


CUDNN = """
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import NamedSharding, PartitionSpec as P
mesh = jax.make_mesh((jax.device_count(),), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
def loss(w, x):
    q = (x @ w).reshape(8, 128, 2, 64)
    y = jax.nn.dot_product_attention(q, q, q, is_causal=True, implementation="cudnn")
    return jnp.mean(y.astype(jnp.float32))
step = jax.jit(lambda w, x: w - jax.grad(loss)(w, x))
w = jax.device_put(jnp.ones((32, 128), jnp.bfloat16), NamedSharding(mesh, P()))
x = jax.device_put(jnp.ones((8, 128, 32), jnp.bfloat16), NamedSharding(mesh, P("x")))
for _ in range(3):
    w = step(w, x)
"""


@pytest.mark.thorough
def test_a_program_finds_cudnn_on_the_devices_that_have_it(tmp_path):
    (tmp_path / "p.py").write_text(CUDNN)
    run = command(tmp_path / "p.py", devices=4, per_node=4, options=("-o", tmp_path / "out"))
    assert run.returncode == 0, run.stderr
    [program] = load(tmp_path / "out").programs
    kernels = [node for graph, _ in program.graph.walk() for node in graph if "fmha" in str(node)]
    assert len(kernels) == 2, run.stderr  # forward and backward


#: Float32 on 8 devices: 1,024 x 512 weights, of which each has an eighth, and a batch on all.
HELD = """
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import NamedSharding, PartitionSpec as P
mesh = jax.make_mesh((8,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
w = jax.device_put(np.ones((1024, 512), np.float32), NamedSharding(mesh, P("x")))
batch = jax.device_put(np.ones((64, 1024), np.float32), NamedSharding(mesh, P()))
rows = jax.device_put(np.arange(64.0, dtype=np.float32), NamedSharding(mesh, P("x")))
for number, shard in enumerate(rows.addressable_shards):
    np.testing.assert_array_equal(shard.data, np.arange(8.0 * number, 8.0 * number + 8))
del shard
np.testing.assert_array_equal(rows.addressable_data(3), np.arange(24.0, 32.0))
np.testing.assert_array_equal(rows, np.arange(64.0))
own = 1024 * 512 * 4 // 8 + 64 * 1024 * 4 + 64 * 4 // 8
step = jax.jit(lambda w, x: w - 0.1 * jax.grad(lambda w: jnp.mean((x @ w) ** 2))(w))
for number in range(3):
    assert jax.devices()[0].memory_stats()["bytes_in_use"] == own, number
    w = step(w, batch)
"""


def test_memory_in_use_is_that_of_the_arrays_that_are_held_and_shards_have_their_values(tmp_path):
    (tmp_path / "p.py").write_text(HELD)
    run = command(tmp_path / "p.py", options=("-o", tmp_path / "out"))
    assert run.returncode == 0, run.stderr
    assert "memory in use is read at" in run.stderr


#: Each step computes on the part of the first device what nobody else takes part in.
PARTS = """
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import NamedSharding, PartitionSpec as P
mesh = jax.make_mesh((8,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
w = jax.device_put(np.ones((512, 512), np.float32), NamedSharding(mesh, P("x")))
step = jax.jit(lambda w: 0.9 * w)
for _ in range(4):
    w = step(w)
    part = w.addressable_data(0)
    assert part.shape == (64, 512) and part.devices() == {jax.devices()[0]}
    jnp.sum(part)
"""


@pytest.mark.thorough
def test_what_is_computed_of_one_devices_part_communicates_nothing(tmp_path):
    (tmp_path / "p.py").write_text(PARTS)
    run = command(tmp_path / "p.py", options=("-o", tmp_path / "out"))
    assert run.returncode == 0, run.stderr
    [program] = load(tmp_path / "out").programs
    nodes = [node for graph, _ in program.graph.walk() for node in graph]
    assert not any(node.communication for node in nodes)
    assert any(node.op == "reduce" for node in nodes), "the sum of the part"


#: ``shard_map`` refuses operands that lie otherwise than it says where axes are explicit.
EXPLICIT = """
import jax, jax.numpy as jnp
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
mesh = jax.make_mesh((8,), ("x",), axis_types=(AxisType.Explicit,))
made = jax.jit(lambda: jnp.ones((512, 512)), out_shardings=NamedSharding(mesh, P("x")))
half = jax.shard_map(lambda w: w / 2, mesh=mesh, in_specs=P("x"), out_specs=P("x"))
step, w = jax.jit(half), made()
assert jax.typeof(w).sharding.spec == P("x", None)
for _ in range(4):
    w = step(w)
"""


@pytest.mark.thorough
def test_where_axes_are_explicit_a_stated_sharding_is_in_the_type_of_a_result(tmp_path):
    (tmp_path / "p.py").write_text(EXPLICIT)
    run = command(tmp_path / "p.py", options=("-o", tmp_path / "out"))
    assert run.returncode == 0, run.stderr
    assert load(tmp_path / "out").mesh.axes == ("x",)


@pytest.mark.thorough
def test_checkpoints_are_restored_without_values_and_none_is_written(tmp_path):
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    fresh = captured("linen_state", tmp_path / "fresh", "--checkpoints", folder)
    assert not list(folder.iterdir())
    assert any("is not written" in text for text in fresh.warnings)
    partitioned(PROGRAMS / "linen_state.py", tmp_path, "--checkpoints", folder, "--steps", 2)
    saved = sorted(path.name for path in folder.iterdir())
    restored = captured("linen_state", tmp_path / "restored", "--checkpoints", folder)
    assert sorted(path.name for path in folder.iterdir()) == saved
    assert any("is restored without its values" in text for text in restored.warnings)
    [(_, one)], [(_, other)] = modules(restored), modules(fresh)
    assert instructions(one) == instructions(other)


@pytest.mark.thorough
def test_unknown_values_are_assumed_and_the_line_is_named(tmp_path):
    workload = captured("decode_loop", tmp_path / "out")
    assert any("an integer is read at" in text for text in workload.warnings)
    assert any("stay unchanged from step to step" in text for text in workload.warnings)


OTHERS_ARE_ASKED = """
import signal, threading
import jax, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
mesh = Mesh(np.array(jax.devices()).reshape(jax.process_count(), -1), ("processes", "local"))
total = jax.jit(lambda x: x.sum(0), out_shardings=NamedSharding(mesh, P()))

def wait():
    for number in range(1_000):
        own = np.ones(1, np.int32)
        said = jax.make_array_from_process_local_data(NamedSharding(mesh, P("processes")), own)
        if int(total(said)):
            return
        if number == 9:  # as if its time were over
            signal.pthread_kill(threading.main_thread().ident, signal.SIGALRM)

thread = threading.Thread(target=wait)
thread.start()
thread.join()
"""


@pytest.mark.thorough
def test_a_thread_that_waits_for_an_unknown_integer_is_named_when_time_is_over(tmp_path):
    (tmp_path / "p.py").write_text(OTHERS_ARE_ASKED)
    run = command(tmp_path / "p.py", devices=8, per_node=4, options=("-o", tmp_path / "out"))
    assert run.returncode == 1
    said = run.stderr.splitlines()[-1]
    assert re.search(r"stopped at .*p\.py:1[89]", said), run.stderr
    assert re.search(r"an integer is read at .*p\.py:12: assumed to be 0 \(\d+ times\)", said)
