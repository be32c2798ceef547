"""Values that a step computes while it is traced, and where its errors say that they are raised."""

from __future__ import annotations

import importlib.util
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import flint
from flint.capturing import user_frames
from flint.errors import FlintError
from flint.frontends.jax.internals.tracing import mesh_context
from tests.support.meshes import auto_mesh


def setup(mesh):
    def abstract(shape, *spec):
        return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(mesh, P(*spec)))

    return abstract((32, 64), "data", "model"), abstract((16, 32), "data")


def constant(w, x):
    with jax.ensure_compile_time_eval():
        c = 1.0 / (10000 ** (jnp.arange(64) / 64))
        assert float(c[32]) == pytest.approx(0.01)
    return ((x @ w) * c).sum()


def decides(w, x):
    with jax.ensure_compile_time_eval():
        keep = bool(jax.jit(lambda n: n.sum() > 5)(jnp.arange(4)))
        table = np.asarray(jax.random.permutation(jax.random.key(0), 32))
        with jax.ensure_compile_time_eval():
            assert int(jax.lax.fori_loop(0, 3, lambda n, s: s + n, jnp.int32(4))) == 7
    assert keep
    return (x[:, table] @ w).sum()


def in_a_scan(w, x):
    def body(total, row):
        with jax.ensure_compile_time_eval():
            c = jnp.linalg.norm(jnp.eye(4))
        return total + row.sum() * float(c), None

    return jax.lax.scan(body, 0.0, x @ w)[0]


@pytest.mark.parametrize("step", [constant, decides, in_a_scan])
def test_constants_are_computed_while_a_step_is_traced(step):
    capture = flint.capture(
        jax.jit(jax.grad(step)), mesh=(4, 2), axes=("data", "model"), setup=setup
    )
    assert capture.capture(level="logical").warnings == {}


def test_constants_are_computed_where_the_mesh_is_explicit():
    capture = flint.capture(
        jax.jit(constant), mesh=(4, 2), axes=("data", "model"), setup=setup,
        axis_types=AxisType.Auto,
    )  # fmt: skip
    explicit = flint.capture(
        jax.jit(lambda w, x: x + jax.device_get(_computed())), mesh=(4, 2), axes=("data", "model"),
        setup=setup, axis_types=AxisType.Explicit,
    )  # fmt: skip
    assert capture.capture(level="logical").warnings == {}
    assert explicit.capture(level="logical").warnings == {}


def _computed():
    with jax.ensure_compile_time_eval():
        return jnp.sin(jnp.arange(32.0))


def test_the_mesh_is_in_context_again_behind_it():
    mesh = auto_mesh((4,), ("data",))
    with mesh_context(mesh):
        with jax.ensure_compile_time_eval():
            assert jax.sharding.get_abstract_mesh().empty
        assert jax.sharding.get_abstract_mesh() == mesh


LIBRARY = """
def check(x):
    if x.shape[0] > 4:
        raise ValueError("too many rows")
    return x
"""
STEP = """
import jax
import layerlib
from beside import multiply


def in_a_library(x):
    return layerlib.check(x)


def in_another_file(x):
    return multiply(x)


def in_the_backward_pass(x):
    return jax.grad(lambda x: broken(x).sum())(x)


@jax.custom_vjp
def broken(x):
    return x


def forward(x):
    return x, None


def backward(_, g):
    raise KeyError("no residual")


broken.defvjp(forward, backward)
"""
BESIDE = """
def multiply(x):
    return x.reshape(3, -1)
"""


@pytest.fixture
def program(tmp_path, monkeypatch):
    """A step in a file, a file next to it, and a library that is installed."""
    installed = tmp_path / "site-packages"
    installed.mkdir()
    (installed / "layerlib.py").write_text(LIBRARY)
    (tmp_path / "steps.py").write_text(STEP)
    (tmp_path / "beside.py").write_text(BESIDE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(installed))
    monkeypatch.syspath_prepend(str(tmp_path))
    folders = (*user_frames._INSTALLED, f"{installed}/")
    monkeypatch.setattr(user_frames, "_INSTALLED", folders)
    for name in ("steps", "beside", "layerlib"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    spec = importlib.util.spec_from_file_location("steps", tmp_path / "steps.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("name", "where"),
    [
        ("in_a_library", "layerlib.py:4, called at steps.py:8: in_a_library cannot be traced"),
        ("in_another_file", "beside.py:3: in_another_file cannot be traced"),
        ("in_the_backward_pass", "steps.py:29: in_the_backward_pass cannot be traced: KeyError"),
    ],
)
def test_an_error_names_the_line_that_raised_it(name, where, program):
    x = jax.ShapeDtypeStruct((8, 8), jnp.float32)
    with pytest.raises(FlintError) as error:
        flint.capture(getattr(program, name), mesh=(1,)).capture(x)
    assert str(error.value).startswith(where)
