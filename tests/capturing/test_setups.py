"""Setups: functions that make a step's arguments for a mesh."""

from __future__ import annotations

import pytest

import flint
from flint.errors import UsageError


def test_a_setup_that_does_not_take_the_mesh_alone_is_refused_with_its_line():
    def made(mesh, other):
        return ()

    step = flint.capture(lambda x: x, mesh=(2,), axes=("d",), setup=made)
    line = made.__code__.co_firstlineno
    with pytest.raises(UsageError, match=rf"test_setups.py:{line}: made is called with the mesh"):
        step.capture()
