"""Programs that check values on the host, ask what is compiled, look at shards, save and load."""

from __future__ import annotations

import pytest

from flint.workload.loading import load
from tests.frontends.jax.programs.really_run import instructions, modules, partitioned
from tests.frontends.jax.programs.test_against_runs import MAPPED, MAPPED_STEP, command
from tests.support.shared import quick_rows

BEGIN = """
import tempfile, jax, jax.numpy as jnp, numpy as np
from jax.experimental import checkify
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
mesh = jax.make_mesh((4,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
rows, whole = NamedSharding(mesh, P("x")), NamedSharding(mesh, P())
w = jax.jit(lambda: jnp.ones((512, 512)), out_shardings=rows)()
"""
#: What is jitted is JAX's function around the program's own, which no call of a plain jit is.
CHECKED = """
def step(w, x):
    loss, g = jax.value_and_grad(lambda w: jnp.mean((x @ w) ** 2))(w)
    checkify.check(jnp.isfinite(loss), "the loss is {loss}", loss=loss)
    return w - 0.1 * g, loss
checked = jax.jit(checkify.checkify(step), out_shardings=(None, (rows, whole)))
"""
AT_ITS_CALL = """
for _ in range(4):
    error, (w, loss) = checked(w, jax.device_put(np.ones((64, 512), np.float32), rows))
    error.throw()
"""
AHEAD = """
x = jax.ShapeDtypeStruct((64, 512), jnp.float32, sharding=rows)
compiled = checked.lower(w, x).compile()
assert [place.spec for place in compiled.input_shardings[0]] == [P("x"), P("x")]
assert [aval.shape for aval in compiled.in_avals[0]] == [(512, 512), (64, 512)]
for _ in range(4):
    error, (w, loss) = compiled(w, jax.device_put(np.ones((64, 512), np.float32), rows))
    error.throw()
"""
#: The compiler chooses where results lie, and shows debugging aids where arrays lie.
PLACED = """
@jax.jit
def step(w, x):
    y = x @ w
    jax.debug.inspect_array_sharding(y, callback=print)
    return w - x.T @ y, y.sum()
x = jax.ShapeDtypeStruct((64, 512), jnp.float32, sharding=rows)
compiled = step.lower(w, x).compile()
assert [place.spec for place in compiled.output_shardings] == [P("x"), P()]
assert compiled.output_formats[0].sharding.spec == P("x")
format = compiled.input_formats[0][1]
for _ in range(4):
    w, loss = compiled(w, jax.device_put(np.ones((64, 512), np.float32), format))
    jax.debug.inspect_array_sharding(w, callback=print)
"""
#: What is lowered is a function of flat arguments, which pmap lowers anew for the program's own.
MAPPED_AHEAD = """
def step(p, x, *, rate):
    loss, g = jax.value_and_grad(lambda p: jnp.mean((x @ p["w"]) ** 2))(p)
    return {"w": p["w"] - rate * jax.lax.pmean(g["w"], "b")}, loss
p, x, rate = {"w": jnp.ones((4, 256, 512))}, jnp.ones((4, 16, 256)), jnp.full((4,), 0.1)
lowered = jax.pmap(step, axis_name="b").lower(p, x, rate=rate)
assert "all_reduce" in lowered.as_text() and lowered.args_info[1]["rate"].shape == (4,)
compiled = lowered.compile()
for _ in range(4):
    p, loss = compiled(p, x, rate=rate)
assert loss.shape == (4,)
"""
#: Parameters are made, and losses kept, on the host's processor.
ON_HOST = """
[host, *_] = jax.devices("cpu")
assert (host.platform, host.device_kind, host.memory_stats()) == ("cpu", "cpu", None)
with jax.default_device(host):
    w = jax.random.normal(jax.random.key(0), (512, 1024))
assert w.devices() == {host}
w = jax.device_put(w, rows)
@jax.jit
def step(w, x):
    loss, g = jax.value_and_grad(lambda w: jnp.mean((x @ w) ** 2))(w)
    return w - 0.1 * g, loss
for _ in range(4):
    w, loss = step(w, jax.device_put(np.ones((64, 512), np.float32), rows))
    kept = jax.device_put(loss, host)
    assert kept.devices() == {host} and len(loss.devices()) == 4
"""
#: A part that every device has is as large as its array, and yet on one device.
SHARDS = """
@jax.jit
def step(w, b, x):
    return w - jax.grad(lambda w: jnp.mean((x @ w + b) ** 2))(w)
b = jax.jit(lambda: jnp.ones(512), out_shardings=whole)()
for array in (w, b):
    part = array.addressable_shards[1].data
    with jax.set_mesh(Mesh([part.device], ("one",))):
        piece = jax.lax.slice_in_dim(part, 0, 16)
    assert piece.shape[0] == 16 and len(piece.devices()) == 1
for _ in range(4):
    w = step(w, b, jax.device_put(np.ones((64, 512), np.float32), rows))
"""
#: A function that is exported and called again, as one that was read from a file.
EXPORTED = """
def loss_and_gradient(w, x):
    return jax.value_and_grad(lambda w: jnp.mean((x @ w) ** 2))(w)
exported = jax.export.export(jax.jit(loss_and_gradient, in_shardings=(rows, rows)))(
    w, jax.ShapeDtypeStruct((64, 512), jnp.float32)
)
@jax.jit
def step(w, x):
    loss, g = exported.call(w, x)
    return w - 0.1 * g, loss
for _ in range(4):
    w, loss = step(w, jax.device_put(np.ones((64, 512), np.float32), rows))
"""
#: Tokens come before the operands and the results of the function that XLA compiles.
ORDERED = """
from jax.experimental import io_callback
seen = []
@jax.jit
def step(w, x):
    loss, g = jax.value_and_grad(lambda w: jnp.mean((x @ w) ** 2))(w)
    io_callback(seen.append, None, loss, ordered=True)
    return w - 0.1 * g, loss
for _ in range(4):
    w, loss = step(w, jax.device_put(np.ones((64, 512), np.float32), rows))
"""
#: The text, the costs and the sizes of an executable, which is saved and loaded again.  On a device
#: 16 of 64 rows meet all of w in two products; w's quarter and these rows are arguments.
INSPECTED = """
import functools
from jax.experimental.serialize_executable import deserialize_and_load, serialize
@functools.partial(jax.jit, donate_argnums=0)
def step(w, x):
    y = x @ w
    return w - x.T @ y, y.sum()
x = jax.ShapeDtypeStruct((64, 512), jnp.float32, sharding=rows)
compiled = step.lower(w, x).compile()
text = compiled.as_text()
assert text.count(" all-gather(") == 1 and " all-reduce(" in text
assert 2 * 2 * 16 * 512 * 512 <= compiled.cost_analysis()["flops"] < 1.03 * 2 * 2 * 16 * 512 * 512
sizes = compiled.memory_analysis()
assert sizes.argument_size_in_bytes == (512 + 64) * 512 // 4 * 4
assert sizes.alias_size_in_bytes == 512 * 512 // 4 * 4
[module] = compiled.runtime_executable().hlo_modules()
assert module.name == "jit_step" and compiled.out_info[0].shape == (512, 512)
alone = jax.jit(lambda x: x @ x).lower(jnp.ones((64, 64))).compile()
assert alone.cost_analysis()["flops"] == 2 * 64**3
compiled = deserialize_and_load(*serialize(compiled))
for _ in range(4):
    w, loss = compiled(w, jax.device_put(np.ones((64, 512), np.float32), rows))
"""


@pytest.mark.parametrize(
    ("text", "name"),
    quick_rows(
        [
            (CHECKED + AHEAD, "checked_fun"),
            (CHECKED + AT_ITS_CALL, "checked_fun"),
            (PLACED, "step"),
            (MAPPED_AHEAD, MAPPED_STEP),
            (ON_HOST, "step"),
            (SHARDS, "step"),
            (EXPORTED, "step"),
            (INSPECTED, "step"),
        ],
        (CHECKED + AHEAD, "checked_fun"),
    ),
)
def test_the_step_is_the_module_that_a_run_compiles(text, name, tmp_path):
    (tmp_path / "p.py").write_text(BEGIN + text)
    run = command(tmp_path / "p.py", devices=4, per_node=4, options=("-o", tmp_path / "out"))
    assert run.returncode == 0, run.stderr
    found = dict(modules(load(tmp_path / "out")))
    real = partitioned(tmp_path / "p.py", tmp_path, devices=4)
    own = MAPPED if text == MAPPED_AHEAD else name
    assert instructions(found[name]) == instructions(real[own])


@pytest.mark.thorough
def test_tokens_of_ordered_effects_are_neither_inputs_nor_outputs(tmp_path):
    (tmp_path / "p.py").write_text(BEGIN + ORDERED)
    run = command(tmp_path / "p.py", devices=4, per_node=4, options=("-o", tmp_path / "out"))
    assert run.returncode == 0, run.stderr
    program, *others = load(tmp_path / "out").programs  # the first device alone calls the host
    assert len(others) == 1
    assert [str(item.type) for item in program.inputs] == ["128x512xf32", "16x512xf32"]
    real = partitioned(tmp_path / "p.py", tmp_path, devices=4)["step"]
    ours, theirs = (
        {line: times for line, times in instructions(module).items() if "token[]" not in line}
        for module in (program.module[0], real)
    )
    assert ours == theirs


CHOSEN = """
step = jax.jit(lambda w, x: w - x.sum())
print(step.lower(w, 1.0 * np.ones(4)).compile().input_shardings)
"""


@pytest.mark.thorough
def test_a_placement_that_the_compiler_would_choose_is_asked_for_by_its_line(tmp_path):
    (tmp_path / "p.py").write_text(BEGIN + CHOSEN)
    run = command(tmp_path / "p.py", devices=4, per_node=4, options=("-o", tmp_path / "out"))
    assert run.returncode == 1
    last = run.stderr.splitlines()[-1]
    assert "p.py:10: " in last and "input_shardings" in last and "state them" in last


LOADED = """
from jax.experimental import serialize_executable
serialize_executable.deserialize_and_load(b"of a run", None, None)
"""


@pytest.mark.thorough
def test_an_executable_of_another_run_is_refused_by_its_line(tmp_path):
    (tmp_path / "p.py").write_text(BEGIN + LOADED)
    run = command(tmp_path / "p.py", devices=4, per_node=4, options=("-o", tmp_path / "out"))
    assert run.returncode == 1
    last = run.stderr.splitlines()[-1]
    assert "p.py:10: " in last and "an executable of another run" in last


SAVED = """
import os, orbax.checkpoint.experimental.v1 as ocp
folder = tempfile.mkdtemp()
save, load = (getattr(ocp, n, None) or getattr(ocp, n + "_pytree") for n in ("save", "load"))
later = getattr(ocp, "save_async", None) or ocp.save_pytree_async
save(folder + "/first", {"w": w})
wanted = {"w": jax.ShapeDtypeStruct(w.shape, w.dtype, sharding=NamedSharding(mesh, P(None, "x")))}
w = load(folder + "/first", wanted)["w"]
assert w.sharding.spec == P(None, "x")
@jax.jit
def step(w):
    return w - 0.1 * w.sum()
for number in range(4):
    w = step(w)
    later(f"{folder}/{number}", {"w": w}).result()
    assert not os.listdir(folder)
"""


@pytest.mark.thorough
def test_orbax_s_newer_functions_write_nothing_and_load_what_they_would_have_written(tmp_path):
    (tmp_path / "p.py").write_text(BEGIN + SAVED)
    run = command(tmp_path / "p.py", devices=4, per_node=4, options=("-o", tmp_path / "out"))
    assert run.returncode == 0, run.stderr
    for told in ("13 is not written", "22 is not written", "15 is restored without its values"):
        assert f"p.py:{told}" in run.stderr
    [program] = load(tmp_path / "out").programs
    assert [str(item.type) for item in program.inputs] == ["512x128xf32"]
