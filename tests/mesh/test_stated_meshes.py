"""The forms in which a mesh can be stated, in Python and on the command line."""

import jax
import pytest

import flint
from flint.errors import UsageError
from flint.mesh.mesh import Mesh, as_mesh, parse_mesh

NAMED = Mesh((4, 2), ("data", "model"))


@pytest.mark.parametrize(
    "stated",
    [
        {"data": 4, "model": 2},
        NAMED,
        jax.sharding.AbstractMesh((4, 2), ("data", "model")),
    ],
    ids=["names with sizes", "flint's", "jax's"],
)
def test_a_mesh_with_names_needs_no_axes(stated):
    assert as_mesh(stated) == NAMED
    assert as_mesh(stated, ("a", "b")) == Mesh((4, 2), ("a", "b"))


@pytest.mark.parametrize("text", ["data=4,model=2", " data = 4, model = 2,"])
def test_the_command_line_takes_names_with_sizes(text):
    assert parse_mesh(text) == NAMED


def test_a_step_is_captured_on_the_axes_that_its_mesh_names():
    step = flint.capture(lambda x: x @ x, mesh={"data": 4, "model": 2})
    square = jax.ShapeDtypeStruct((8, 8), "float32")
    assert step.capture(square).mesh == NAMED
    assert step.at({"rows": 2}).capture(square).mesh == Mesh((2,), ("rows",))


@pytest.mark.parametrize(
    "text", ["data=4,2", "data=", "data=x", "data=4,data=2", "data=4=2", "=", "4;2"]
)
def test_other_text_is_refused_with_an_example(text):
    with pytest.raises(UsageError, match=r"--mesh .*(such as 64,8 or data=64,model=8|twice)"):
        parse_mesh(text)


@pytest.mark.parametrize("stated", ["4,2", 4.5, (4, "2"), {"data": 2.5}, object()])
def test_another_object_is_refused_with_an_example(stated):
    with pytest.raises(UsageError, match=r"expected sizes such as \(64, 8\)"):
        as_mesh(stated)


def test_names_in_two_options_must_agree():
    assert parse_mesh("data=4,model=2", "data, model") == NAMED
    with pytest.raises(UsageError, match=r"names the axes, and --axes model,data differs"):
        parse_mesh("data=4,model=2", "model,data")
