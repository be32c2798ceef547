"""Run a JAX program for real on CPU devices that say that they are another kind.

    python named_devices.py "TPU v5p" -m package.train --its arguments

Programs that choose tuned sizes by the kind of the device choose as on the cluster.
"""

import runpy
import sys

from jaxlib import _jax

if __name__ == "__main__":
    kind, _, *sys.argv = sys.argv[1:]
    _jax.Device.device_kind = property(lambda self: kind)
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
