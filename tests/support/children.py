"""Child processes of tests: scripts that run programs for real."""

from __future__ import annotations

import functools
import importlib.util
import json
import mmap
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.support.warm import warm

#: Seconds after which a child is taken for hung; no result depends on it.
HUNG = 3600


#: How well LLVM optimises a kernel is rarely what is tested, and costs more than all else.
UNOPTIMISED = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
#: The same kernels from XLA's older emitters, and in one module: a fourth of the time.
FAST_EMITTERS = {"xla_cpu_use_fusion_emitters": False, "xla_cpu_parallel_codegen_split_count": 1}


@functools.cache
def fast_emitters() -> dict[str, bool | int]:
    """Those that the installed jaxlib knows: it ends a process with another flag."""
    jaxlib = importlib.util.find_spec("jaxlib")
    for place in (jaxlib and jaxlib.submodule_search_locations) or ():
        library = Path(place, "libjax_common.so")
        if library.exists():
            with (
                library.open("rb") as file,
                mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data,
            ):
                # As a text of its own: names of former flags are left in XLA's descriptors.
                known = {name for name in FAST_EMITTERS if data.find(f"\0{name}\0".encode()) >= 0}
            return {name: value for name, value in FAST_EMITTERS.items() if name in known}
    return {}


def child_environment(devices: int = 0, flags: str = UNOPTIMISED) -> dict[str, str]:
    """For a script that imports what the tests import, and has that many CPU devices in JAX.

    Without a number the script sets its own.
    """
    environment = {key: value for key, value in os.environ.items() if key != "XLA_FLAGS"}
    # A device that waits in a collective holds one of XLA's threads: with as many threads as cores
    # or devices, all of them can wait for one that finds none.
    environment["NPROC"] = "64"
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    if devices:
        if flags == UNOPTIMISED:
            more = (f"--{name}={str(value).lower()}" for name, value in fast_emitters().items())
            flags = " ".join((flags, *more))
        environment["JAX_PLATFORMS"] = "cpu"
        environment["XLA_FLAGS"] = (
            f"--xla_force_host_platform_device_count={devices} "
            f"--xla_cpu_collective_call_terminate_timeout_seconds={HUNG} {flags}"
        )
    return environment


def run_script(
    script: Path,
    *arguments: object,
    devices: int = 0,
    flags: str = UNOPTIMISED,
    imported: str | None = None,
) -> str:
    """Standard output of a Python script that must succeed.

    It is a fork of a process that has imported a framework (``warm.py``), JAX where it has devices,
    or a new process.
    """
    words, variables = [str(script), *map(str, arguments)], child_environment(devices, flags)
    imported = "jax" if devices else imported
    if imported is not None:
        done = warm(imported).run(words, None, variables)
    else:
        done = subprocess.run(
            [sys.executable, *words], env=variables,
            capture_output=True, text=True, timeout=HUNG, check=False,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def answer_of(script: Path, *arguments: object, devices: int = 0, flags: str = UNOPTIMISED) -> Any:
    """What a script prints as JSON in its last line."""
    return json.loads(run_script(script, *arguments, devices=devices, flags=flags).splitlines()[-1])
