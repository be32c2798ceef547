"""What a program computes for real on several devices, and how it indexes arrays that lie there."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from flint.frontends.jax.internals.jaxprs import constrained
from flint.workload.loading import load
from tests.frontends.jax.programs.really_run import instructions, modules, partitioned
from tests.frontends.jax.programs.test_against_runs import OLD, command
from tests.support.shared import quick

#: A counter that devices sum up, which the program reads.
COUNTS = """
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
mesh = Mesh(np.array(jax.local_devices()), ("i",))
def count(w, x, n):
    return w - 0.1 * jax.lax.pmean(x.T @ (x @ w), "i"), n + jax.lax.psum(1 + n, "i")
specs = P(), P("i"), P()
step = jax.jit(jax.shard_map(count, mesh=mesh, in_specs=specs, out_specs=(P(), P())))
w, n, seen = np.ones((512, 512), np.float32), np.zeros((), np.int32), []
for _ in range(4):
    x = jax.device_put(np.ones((64, 512), np.float32), NamedSharding(mesh, P("i")))
    w, n = step(w, x, n)
    seen.append(int(n))
    assert seen == [mesh.size, *(mesh.size + (mesh.size + 1) * old for old in seen[:-1])], seen
"""


@pytest.mark.parametrize("per_node", quick([4, 2], 2))
def test_a_counter_that_local_devices_sum_up_is_known(per_node, tmp_path):
    (tmp_path / "p.py").write_text(COUNTS)
    out = "-o", tmp_path / "out"
    run = command(tmp_path / "p.py", devices=4, per_node=per_node, options=out)
    assert run.returncode == 0, run.stderr
    assert "integer is read" not in run.stderr


#: The losses of all devices, of which the program logs one and a part.
INDEXES = """
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import NamedSharding, PartitionSpec as P
mesh = jax.make_mesh((4,), ("i",), axis_types=(jax.sharding.AxisType.Auto,))
step = jax.jit(lambda w, x: (w - 0.1 * x.T @ (x @ w), (x @ w).sum(1)))
w = jax.device_put(np.ones((512, 512), np.float32), NamedSharding(mesh, P()))
for _ in range(4):
    w, losses = step(w, jax.device_put(np.ones((64, 512), np.float32), NamedSharding(mesh, P("i"))))
    float(losses[0]), np.asarray(losses[8:16])
"""


@pytest.mark.thorough
def test_arrays_on_several_devices_are_indexed_as_in_a_run(tmp_path):
    (tmp_path / "p.py").write_text(INDEXES)
    out = "-o", tmp_path / "out"
    run = command(tmp_path / "p.py", devices=4, per_node=4, options=out)
    assert run.returncode == 0, run.stderr
    found = modules(load(tmp_path / "out"))
    real = partitioned(tmp_path / "p.py", tmp_path, devices=4)
    assert {name.strip("<>") for name, _ in found} == {name.strip("_<>") for name in real}
    assert all(name.strip("<>") in {key.strip("_<>") for key in real} for name, _ in found)
    by_name = {name.strip("_<>"): module for name, module in real.items()}
    last = {name.strip("<>"): module for name, module in found}
    for name, module in last.items():
        assert instructions(module) == instructions(by_name[name]), name


#: A part of the work of one device alone.
TO_ONE = """
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
mesh = Mesh(np.array(jax.devices()), ("i",))
x = jax.device_put(np.ones((64, 512), np.float32), NamedSharding(mesh, P("i")))
y = jax.device_put(x, jax.devices()[0])
step = jax.jit(lambda y: y @ y.T @ y)
for _ in range(4):
    y = step(y)
"""


def test_an_array_that_is_put_on_one_device_is_whole_there(tmp_path):
    (tmp_path / "p.py").write_text(TO_ONE)
    run = command(tmp_path / "p.py", devices=4, per_node=4, options=("-o", tmp_path / "out"))
    assert run.returncode == 0, run.stderr
    assert "nothing is sharded" in run.stderr
    program = load(tmp_path / "out").programs[0]
    assert program.graph.flops_by_node().sum() == 2 * (2 * 64 * 64 * 512)


#: With explicit axes, the tokens that a program makes have a type with their mesh, as its weights.
TYPED = """
import jax, jax.numpy as jnp, numpy as np
mesh = jax.make_mesh((4, 1), ("data", "model"), axis_types=(jax.sharding.AxisType.Explicit,) * 2)
jax.set_mesh(mesh)
def embedded(table, tokens):
    look_up = jax.sharding.auto_axes(lambda table, tokens: jnp.take(table, tokens, axis=0))
    return look_up(table, tokens, out_sharding=jax.typeof(tokens).sharding)
def loss(table, tokens):
    return jnp.sum(embedded(table, tokens) ** 2)
step = jax.jit(lambda table, tokens: table - 0.1 * jax.grad(loss)(table, tokens))
prepare = jax.vmap(lambda row: jnp.concatenate((row[1:], jnp.array([0]))))
table = jnp.ones((64,))
assert int(jnp.arange(1, 4)[1] + jax.random.randint(jax.random.key(0), (3,), 5, 6)[1]) == 7
for _ in range(3):
    tokens = prepare(jnp.stack([np.arange(16)] * 8).T)
    table = step(table, jax.device_put(tokens, jax.P("data", None)))
"""


@pytest.mark.thorough
def test_integers_of_explicit_axes_lie_on_their_mesh_and_are_known(tmp_path):
    (tmp_path / "p.py").write_text(TYPED)
    out = "-o", tmp_path / "out"
    run = command(tmp_path / "p.py", devices=4, per_node=4, options=out)
    assert run.returncode == 0, run.stderr
    left = {"device_put", "slice"}  # a run slices by positions that are data: see lax.slice
    found = [one for one in modules(load(tmp_path / "out")) if one[0] not in left]
    real = partitioned(tmp_path / "p.py", tmp_path, devices=4)
    named = {name.strip("_<>"): module for name, module in real.items()}
    if "stack" not in named:
        pytest.skip("in this version stack is not one function")
    names = [name.strip("<>") for name, _ in found]
    assert names == ["stack", "transpose", "broadcast_in_dim", "concatenate", "lambda"]
    for name, (_, module) in zip(names, found, strict=True):
        assert instructions(module) == instructions(named[name]), name


#: An evaluation between the steps, which ends when its data say so.
EVALUATED = """
import jax, jax.numpy as jnp
def learner(w, x):
    return w - jax.lax.pmean(jax.grad(lambda w: jnp.sum((x @ w) ** 2))(w), "i")
def evaluator(w, x):
    return jax.lax.while_loop(lambda found: found < 9.0, lambda found: found + (x @ w).sum(), 0.0)
learn, evaluate = jax.pmap(learner, axis_name="i"), jax.pmap(evaluator)
w, x = jnp.ones((4, 256, 512)), jnp.ones((4, 16, 256))
for _ in range(4):
    w = learn(w, x)
    evaluate(w, x)
"""


@pytest.mark.thorough
@pytest.mark.skipif(OLD, reason="pmap hides what it maps")
def test_a_step_is_captured_without_the_evaluation_after_it(tmp_path):
    (tmp_path / "p.py").write_text(EVALUATED)
    told = command(tmp_path / "p.py", devices=4, per_node=4, options=("-o", tmp_path / "out"))
    assert "The step is 2 programs: --step learner:call captures learner alone" in told.stderr
    options = "--step", "learner:call", "-o", tmp_path / "out"
    run = command(tmp_path / "p.py", devices=4, per_node=4, options=options)
    assert run.returncode == 0, run.stderr
    assert "warning" not in run.stderr
    [(_, module)] = modules(load(tmp_path / "out"))
    assert load(tmp_path / "out").mesh.axes == ("i",)
    real = [*partitioned(tmp_path / "p.py", tmp_path, devices=4).values()]
    assert any(instructions(module) == instructions(one) for one in real)


#: A state that its function constrains, inside of another jitted function as well.
CONSTRAINED = """
import jax, jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec as P
mesh = jax.make_mesh((2, 2), ("a", "b"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
specs = {"w": P("a", "b"), "v": P(None, ("a", "b")), "r": P(), "e": P(("b", "a"))}
place = jax.jit(lambda x, spec: jax.lax.with_sharding_constraint(x, spec), static_argnums=1)
@jax.jit
def init(key):
    drawn = {name: jax.random.normal(key, (64, 64)) for name in specs}
    placed = {name: place(drawn[name], NamedSharding(mesh, specs[name])) for name in specs}
    return placed, 0 * key[0]
@jax.jit
def step(w, x):
    loss, g = jax.value_and_grad(lambda w: sum(jnp.mean((x @ p) ** 2) for p in w.values()))(w)
    return jax.tree.map(lambda a, b: a - 0.1 * b, w, g), loss
w, n = init(jax.random.PRNGKey(0))
for name, spec in specs.items():
    assert w[name].sharding.is_equivalent_to(NamedSharding(mesh, spec), 2), w[name].sharding
assert n.sharding.is_fully_replicated and n.sharding.num_devices == 4, n.sharding
for i in range(4):
    w, loss = step(w, jax.device_put(jnp.ones((64, 64)), NamedSharding(mesh, P("a"))))
"""


@pytest.mark.thorough
def test_results_that_their_function_constrains_lie_there_as_in_a_run(tmp_path):
    (tmp_path / "p.py").write_text(CONSTRAINED)
    out = "-o", tmp_path / "out"
    run = command(tmp_path / "p.py", devices=4, per_node=4, options=out)
    assert run.returncode == 0, run.stderr
    [(name, module)] = modules(load(tmp_path / "out"))
    real = partitioned(tmp_path / "p.py", tmp_path, devices=4)
    assert instructions(module) == instructions(real[name])


@pytest.mark.parametrize(
    ("spec", "after", "chosen"),
    [
        (P("x"), lambda y: y, False),
        (P("x"), jnp.sin, True),
        (P(P.UNCONSTRAINED), lambda y: y, True),
    ],
    ids=["copied", "constrained", "in part"],
)
def test_the_compiler_chooses_where_results_lie_that_are_not_constrained_last(spec, after, chosen):
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("x",))

    def made(y):
        return after(jax.lax.with_sharding_constraint(y * 2, NamedSharding(mesh, spec))), y.sum()

    program = jax.jit(made).trace(jax.ShapeDtypeStruct((8,), jnp.float32)).jaxpr
    assert (constrained(program, mesh) is None) == chosen
