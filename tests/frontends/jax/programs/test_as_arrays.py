"""Arrays without values answer Python and NumPy as jax's own do: the same program, really run."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.frontends.jax.programs.test_against_runs import command
from tests.support.children import HUNG, child_environment

PROGRAM = """
import copy, json, pickle, sys
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import NamedSharding, PartitionSpec as P
mesh = jax.make_mesh((8,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
w = jax.device_put(np.ones((64, 64), np.float32), NamedSharding(mesh, P("x")))
step = jax.jit(lambda w: (w * 2, w.sum(), (w > 0).sum()), donate_argnums=0)
one = NamedSharding(jax.sharding.Mesh(jax.devices()[:1], ("y",)), P("y"))
acts = jax.jit(lambda w: w + 1, in_shardings=one, out_shardings=one)
def policy(w):
    return acts(jax.device_put(w, one))
ASKED = {
    "index": lambda: range(10)[w], "index by a float": lambda: range(10)[loss],
    "float": lambda: float(w), "int": lambda: int(w), "complex": lambda: complex(w),
    "bool": lambda: bool(w), "iter": lambda: iter(loss), "len": lambda: len(loss),
    "bytes": lambda: len(w.tobytes()), "copy": lambda: copy.deepcopy(w), "power": lambda: 2.0**w,
    "pickle": lambda: pickle.loads(pickle.dumps({"w": w}))["w"],
    "NumPy's array": lambda: np.ones((64, 64), np.float32) + w, "NumPy's": lambda: np.add(1, w),
    "its number": lambda: np.float32(2) * w, "its product": lambda: np.ones((4, 64), "f") @ w,
    "its comparison": lambda: np.float32(1) < w, "in place": lambda: add(np.zeros((64, 64), "f")),
    "order of dims": lambda: w.format.layout.major_to_minor, "format": lambda: put(w.format),
    "bytes on all devices": lambda: loss.on_device_size_in_bytes(),
    "for another library": lambda: w.__dlpack_device__(),
    "of a part": lambda: np.from_dlpack(part(w)),
    "used up": lambda: (used.is_deleted(), w.is_deleted()), "use of it": lambda: used + 1,
    "on one of the devices": lambda: policy(w).sharding.spec,
    "mesh of one": lambda: dict(policy(w).sharding.mesh.shape),
    "its part": lambda: policy(w).addressable_shards[0].data,
    "all": lambda: {item.shape for item in jax.live_arrays()} >= {w.shape, loss.shape},
    "deleted": lambda: delete(w + 1).is_deleted(), "a deleted one": lambda: len(delete(w + 1) + 1),
}
def put(format):
    return jax.device_put(np.ones((64, 64), np.float32), format).sharding.spec
def part(whole):
    return whole.addressable_shards[0].data
def delete(array):
    array.delete()
    return array
def add(whole):
    whole += w
    return whole
def answer(ask):
    try:
        found = ask()
    except RuntimeError as error:
        return "RuntimeError", "Array has been deleted" in str(error)
    except Exception as error:
        return type(error).__name__, str(error)
    return isinstance(found, jax.Array), str(getattr(found, "shape", found))
for number in range(4):
    used, (w, loss, count) = w, step(w)
    if not number:
        with open(sys.argv[1], "w") as file:
            json.dump({name: answer(ask) for name, ask in ASKED.items()}, file)
"""


#: Where arrays lie that are made like others, with a mesh in context and without one.
LIKE = """
import sys, jax, jax.numpy as jnp
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
made = {
    "zeros": jnp.zeros_like, "ones": jnp.ones_like, "full": lambda x: jnp.full_like(x, 3),
    "of a number": lambda x: jnp.full_like(x, jnp.float32(3)), "times": lambda x: 0 * x,
    "of a dtype": lambda x: jnp.zeros_like(x, dtype=jnp.bfloat16), "tree": jnp.empty_like,
    "another shape": lambda x: jnp.zeros_like(x, shape=(4,)), "new": lambda x: jnp.ones(x.shape),
    "row of": lambda x: list(x)[1], "piece": lambda x: x[:, 2:4], "copy": jnp.array,
}
answers = []
for kind in (AxisType.Auto, AxisType.Explicit):
    mesh = jax.make_mesh((8,), ("x",), axis_types=(kind,))
    w = jax.device_put(jnp.ones((16, 512)), NamedSharding(mesh, P("x")))
    def ask(context):
        for name, make in made.items():
            found = make(w)
            where = getattr(found.sharding, "spec", None), len(found.sharding.device_set)
            answers.append(f"{kind} {context} {name}: {found.shape} {found.dtype} {where}")
    ask("alone")
    with jax.set_mesh(mesh):
        ask("in a mesh")
with open(sys.argv[1], "w") as file:
    file.write(chr(10).join(answers))
step = jax.jit(lambda w: w * 2)
for _ in range(4):
    w = step(w)
"""

#: In a real run all of it holds: an array that was donated or deleted says so.
DELETES = """
import jax, jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec as P
mesh = jax.make_mesh((8,), ("x",))
w = jax.device_put(jnp.ones((64, 64)), NamedSharding(mesh, P("x")))
step = jax.jit(lambda w: w * 2, donate_argnums=0)
for _ in range(4):
    before, w = w, step(w)
    assert before.is_deleted() and not w.is_deleted()
    kept = w + 1
    kept.delete()
    try:
        kept + 1
    except RuntimeError as error:
        assert "Array has been deleted" in str(error)
    else:
        raise AssertionError("it is not deleted")
"""


def test_an_array_knows_that_it_was_donated_or_deleted(tmp_path):
    (tmp_path / "p.py").write_text(DELETES)
    run = command(tmp_path / "p.py", options=("-o", tmp_path / "out"))
    assert run.returncode == 0, run.stderr


@pytest.mark.thorough
@pytest.mark.parametrize("text", [PROGRAM, LIKE], ids=["program", "like"])
def test_an_array_answers_as_one_with_values(text, tmp_path):
    program, mine, real = (tmp_path / name for name in ("p.py", "mine", "real"))
    program.write_text(text)
    run = command(program, mine, options=("-o", tmp_path / "out"))
    assert run.returncode == 0, run.stderr
    subprocess.run(
        [sys.executable, program, real], env=child_environment(8), check=True, timeout=HUNG
    )
    assert mine.read_text() == real.read_text()
