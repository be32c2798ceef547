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
    """To the byte: gradients stay until they are set to None, updates are made in place, what
    ``foreach`` optimizers make for all parameters at once is there at once, and FSDP2 frees what it
    has gathered, and holds what it is about to reduce."""
    shown = subprocess.run(
        [sys.executable, "-m", "tests.simulation.torch_memory"],
        capture_output=True, text=True, check=True, timeout=HUNG,
    )  # fmt: skip
    rows = [json.loads(line) for line in shown.stdout.splitlines() if line.startswith("[")]
    assert len(rows) == 6
    for optimizer, again, allocated, ours in rows:
        # A checkpoint keeps the state of the random generator: that of mt19937, 5056 bytes, for
        # each of three blocks, as long as these are to be computed again.
        assert 0 <= allocated - ours <= (3 * 5056 if again else 0), (optimizer, again)
