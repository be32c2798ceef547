"""Captures and executions of the tiny models, each made once."""

from __future__ import annotations

import importlib

import pytest

from tests.frontends.jax.comparing import run_on_host_devices
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


@pytest.fixture(scope="session")
def executed_models():
    """Model name -> what a run of its step on host devices did."""
    names = {name: ":".join(place) for name, place in MODELS.items()}
    found = run_on_host_devices(names.values())
    return {name: found[place] for name, place in names.items()}
