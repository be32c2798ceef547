"""Peak memory of eager PyTorch against what its own memory profiler saw allocated."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.support.children import HUNG

pytestmark = pytest.mark.thorough

pytest.importorskip("torch")


def test_eager_steps_need_what_the_allocator_gave_them():
    """Gradients stay until they are set to None, updates are made in place, and what ``foreach``
    optimizers make for all parameters at once is there at once."""
    shown = subprocess.run(
        [sys.executable, "-m", "tests.simulation.torch_memory"],
        capture_output=True, text=True, check=True, timeout=HUNG,
    )  # fmt: skip
    rows = [json.loads(line) for line in shown.stdout.splitlines() if line.startswith("[")]
    assert len(rows) == 4
    for optimizer, again, allocated, ours in rows:
        # A checkpoint keeps the state of the random generator, some kilobytes.
        assert ours == pytest.approx(allocated, rel=0.01, abs=20000), (optimizer, again)
