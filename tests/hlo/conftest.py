"""HLO dumps that XLA makes here and now of the programs in ``programs.py``."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.children import HUNG
from tests.support.shared import once

HERE = Path(__file__).parent


def _names():
    text = (HERE / "programs.py").read_text()
    return [part.split("(")[0] for part in text.split("@program\ndef ")[1:]]


def _made(factory, name, *options):
    """Program name -> its dump."""
    folder = once(factory, name, lambda folder: _run(folder, *options))
    return {name: (folder / f"{name}.hlo.pb").read_bytes() for name in _names()}


def _run(folder, *options):
    command = [sys.executable, str(HERE / "partition.py"), str(folder), *options, *_names()]
    done = subprocess.run(command, capture_output=True, timeout=HUNG, check=False)
    missing = [name for name in _names() if not (folder / f"{name}.hlo.pb").exists()]
    assert not missing, (missing, done.stderr.decode()[-2000:])


def pytest_generate_tests(metafunc):
    if "program" in metafunc.fixturenames:
        metafunc.parametrize("program", _names())


@pytest.fixture(scope="session")
def partitioned(tmp_path_factory):
    """Program name -> HloProto right after XLA's partitioner, for 8 devices."""
    return _made(tmp_path_factory, "partitioned")


@pytest.fixture(scope="session")
def optimized(tmp_path_factory):
    """Program name -> HloModuleProto after a whole CPU compilation, for 8 devices."""
    return _made(tmp_path_factory, "optimized", "--optimize")
