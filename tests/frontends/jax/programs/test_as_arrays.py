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
step = jax.jit(lambda w: (w * 2, w.sum(), (w > 0).sum()))
ASKED = {
    "index": lambda: range(10)[w], "index by a float": lambda: range(10)[loss],
    "float": lambda: float(w), "int": lambda: int(w), "complex": lambda: complex(w),
    "bool": lambda: bool(w), "iter": lambda: iter(loss), "len": lambda: len(loss),
    "bytes": lambda: len(w.tobytes()), "copy": lambda: copy.deepcopy(w), "power": lambda: 2.0**w,
    "pickle": lambda: pickle.loads(pickle.dumps({"w": w}))["w"],
    "NumPy's array": lambda: np.ones((64, 64), np.float32) + w, "NumPy's": lambda: np.add(1, w),
    "its number": lambda: np.float32(2) * w, "its product": lambda: np.ones((4, 64), "f") @ w,
    "its comparison": lambda: np.float32(1) < w, "in place": lambda: add(np.zeros((64, 64), "f")),
}
def add(whole):
    whole += w
    return whole
def answer(ask):
    try:
        found = ask()
    except Exception as error:
        return type(error).__name__, str(error)
    return isinstance(found, jax.Array), str(getattr(found, "shape", found))
for number in range(4):
    w, loss, count = step(w)
    if not number:
        with open(sys.argv[1], "w") as file:
            json.dump({name: answer(ask) for name, ask in ASKED.items()}, file)
"""


@pytest.mark.thorough
def test_an_array_answers_as_one_with_values(tmp_path):
    program, mine, real = (tmp_path / name for name in ("p.py", "mine", "real"))
    program.write_text(PROGRAM)
    run = command(program, mine, options=("-o", tmp_path / "out"))
    assert run.returncode == 0, run.stderr
    subprocess.run(
        [sys.executable, program, real], env=child_environment(8), check=True, timeout=HUNG
    )
    assert mine.read_text() == real.read_text()
