"""Captures of the tiny models, each made once."""

from __future__ import annotations

import importlib

import pytest

from tests.models.jax.names import MODELS


def step_of(name):
    """The capture of a model's name."""
    module, attribute = MODELS[name]
    return getattr(importlib.import_module(module), attribute)


@pytest.fixture(scope="session")
def captured_model():
    """Model name, options -> workload."""
    known = {}

    def get(name, **options):
        key = (name, *sorted(options.items()))
        if key not in known:
            known[key] = step_of(name).capture(options=options)
        return known[key]

    return get
