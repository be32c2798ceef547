"""Captures of the steps, each made once."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def steps() -> ModuleType:
    spec = importlib.util.spec_from_file_location("steps", HERE / "steps.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["steps"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def captured(steps):
    """Step name, options -> workload."""
    known = {}

    def get(name, **options):
        key = (name, *sorted(options.items()))
        if key not in known:
            known[key] = getattr(steps, name).capture(options=options)
        return known[key]

    return get
