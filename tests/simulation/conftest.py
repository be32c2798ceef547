"""What several tests of simulations share."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def binary(tmp_path, monkeypatch):
    """An executable with the name that ASTRA-sim's build gives its analytical simulator."""
    place = tmp_path / "bin"
    place.mkdir()
    path = place / "AstraSim_Analytical_Congestion_Unaware"
    script = Path(__file__).with_name("astra_sim_stand_in.py")
    path.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" -P "{script}" "$@"\n')
    path.chmod(0o755)
    monkeypatch.delenv("FLINT_ASTRA_SIM", raising=False)
    return path
