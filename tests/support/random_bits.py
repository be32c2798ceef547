"""Run a JAX program for real on CPU devices, random bits lowered as for a TPU.

    python random_bits.py train.py --its arguments
    python random_bits.py -m package.train --its arguments

Only for CPUs does JAX write the rounds of their hash as a loop.  Programs that keep compiled
functions on the disk compile theirs again, so that XLA writes down what becomes of them.
"""

import runpy
import sys
from pathlib import Path

import jax
from jax._src.interpreters import mlir
from jax.extend.random import threefry2x32_p

if __name__ == "__main__":
    jax.config.update("jax_enable_compilation_cache", False)
    del mlir._platform_specific_lowerings["cpu"][threefry2x32_p]
    sys.argv = sys.argv[1:]
    if sys.argv[0] == "-m":
        sys.argv = sys.argv[1:]
        sys.path[0] = ""
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = str(Path(sys.argv[0]).parent)
        runpy.run_path(sys.argv[0], run_name="__main__")
