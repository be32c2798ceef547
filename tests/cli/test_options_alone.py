"""Options whose value may be left out."""

from __future__ import annotations

import pytest

from flint.cli import _with_values


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("sweep s.py:f --ray", "sweep s.py:f --ray local"),
        ("sweep --ray --mesh 4,2 s.py:f", "sweep --ray local --mesh 4,2 s.py:f"),
        ("sweep s.py:f --ray head:6379 -o out", "sweep s.py:f --ray head:6379 -o out"),
        ("sweep s.py:f --ray=auto", "sweep s.py:f --ray=auto"),
        ("check --ray", "check --ray"),
    ],
)
def test_a_ray_without_an_address_is_one_that_is_started(given, meant):
    assert _with_values(given.split()) == meant.split()
