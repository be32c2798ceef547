"""Settings for all tests.

JAX runs on the CPU by default: several test processes would compete for a GPU's memory.  NumPy's
library for linear algebra has one thread in each: its threads wait in a loop, on cores that other
test processes need.

A shell that starts `make test &` may have it ignore Ctrl-C, which every process below would
inherit.  With a handler here, tests' processes begin with the default.

Python's cycle collector waits until the tests are collected, and then never looks at what is there:
modules and tests, which stay.  It looks at the rest less often than elsewhere, and not at the end,
when pytest asks for it five times.

Hypothesis has no deadline: no test may depend on the machine's speed.  It draws the same examples
in every run.  The profile ``thorough`` of ``make test-all`` draws five times as many, and new ones
every time.
"""

import functools
import gc
import os
import signal
import sys

import pytest
from hypothesis import settings

gc.disable()

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from flint.host import spare_process  # noqa: E402
from tests.support import warm  # noqa: E402
from tests.workloads import loop, loop_file, saved, two_programs  # noqa: E402, F401  # fixtures

# What `nohup` and some CI systems ignore would be ignored by the commands that tests start.
for ending in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    if signal.getsignal(ending) is signal.SIG_IGN:
        signal.signal(ending, lambda *_: None)

settings.register_profile("thorough", deadline=None, print_blob=True)
settings.register_profile(
    "quick", settings.get_profile("thorough"), derandomize=True, max_examples=20
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))


# A capture in the tests' process starts XLA's partitioner, which imports longer than it works.
if sys.platform == "linux":
    spare_process.take = functools.partial(warm.take, warm.own_spare, spare_process.take)


@pytest.hookimpl(hookwrapper=True)
def pytest_collection():
    yield
    gc.freeze()
    gc.set_threshold(*warm.SELDOM)
    gc.enable()


def pytest_sessionfinish():
    warm.end_all()


def pytest_unconfigure():
    gc.freeze()


@pytest.fixture(scope="session")
def host_runs(tmp_path_factory):
    """Profiles of steps that ran for real on host devices, by ``module:attribute``."""
    from tests.support.host_runs import HostRuns  # imports jax, which few tests need

    runs = HostRuns(tmp_path_factory)
    yield runs
    runs.close()
