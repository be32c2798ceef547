"""Run a JAX program for real on CPU devices that say that they are another kind.

    python named_devices.py "TPU v5p" -m package.train --its arguments

Programs that choose tuned sizes by the kind of the device choose as on the cluster.  Random bits
are lowered as for a TPU: only for CPUs does JAX write the rounds of their hash as a loop.
"""

import runpy
import sys

from jax._src.interpreters import mlir
from jax.extend.random import threefry2x32_p
from jaxlib import _jax

if __name__ == "__main__":
    kind, _, *sys.argv = sys.argv[1:]
    _jax.Device.device_kind = property(lambda self: kind)
    del mlir._platform_specific_lowerings["cpu"][threefry2x32_p]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
