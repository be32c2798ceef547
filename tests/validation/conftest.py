"""Steps that are run for real under the profiler, and their captures, each made once."""

from __future__ import annotations

import importlib

import pytest

from tests.models.jax import names_pipeline

#: Name -> where the step is.
STEPS = {
    "mlp": ("tests.frontends.jax.steps", "mlp"),
    "scan": ("tests.frontends.jax.steps", "scan"),
    "unrolled": ("tests.frontends.jax.steps", "unrolled"),
    "ring": ("tests.frontends.jax.steps", "ring"),
    "bf16": ("tests.frontends.jax.steps", "bf16"),
    "explicit": ("tests.frontends.jax.steps", "explicit"),
    "llama3": ("flint.models.jax.llama3", "train_tiny"),
    "llama3_unrolled": ("tests.models.jax.variants", "unrolled"),
    "decode": ("flint.models.jax.decode", "decode_tiny"),
    "moe": ("flint.models.jax.moe", "train_tiny"),
    "ring_attention": ("flint.models.jax.ring_attention", "train_tiny"),
    "resnet": ("flint.models.jax.resnet", "train_tiny"),
    **names_pipeline.MODELS,
}


def step_of(name):
    """The step of a name, ready for capture."""
    module, attribute = STEPS[name]
    return getattr(importlib.import_module(module), attribute)


class Profiles:
    """Step name -> profile folder of a real run on host devices."""

    def __init__(self, host_runs):
        self._runs = host_runs

    def __getitem__(self, name):
        return self._runs[":".join(STEPS[name])]


@pytest.fixture(scope="session")
def profiles(host_runs):
    return Profiles(host_runs)


@pytest.fixture(scope="session")
def captures():
    """Step name -> workload."""
    known = {}

    def get(name):
        if name not in known:
            known[name] = step_of(name).capture()
        return known[name]

    return get
