"""The assembler of the GPU compiler, which does nothing: kernels and memory stay as they are.

Needs the extra `gpu`; skipped without it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from flint.frontends.jax.internals import compile_only
from tests.frontends.jax.compile.conftest import need

#: A product, its exponentials and their sums.
STEP = """
func.func @main(%x: tensor<64x128xbf16>, %w: tensor<128x256xbf16>) -> tensor<64xf32> {
  %y = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
      : (tensor<64x128xbf16>, tensor<128x256xbf16>) -> tensor<64x256xf32>
  %e = stablehlo.exponential %y : tensor<64x256xf32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %sums = stablehlo.reduce(%e init: %zero) applies stablehlo.add across dimensions = [1]
      : (tensor<64x256xf32>, tensor<f32>) -> tensor<64xf32>
  return %sums : tensor<64xf32>
}
"""

#: Compiles the module that it reads with a CUDA folder, and says what came of it.
COMPILING = """
import json, sys
from jaxlib import xla_client
from flint.frontends.jax.internals import compile_only
from flint.frontends.jax.targets.table import table

options = xla_client.CompileOptions()
options.executable_build_options.debug_options.xla_gpu_cuda_data_dir = sys.argv[1]
devices = compile_only.gpu_devices(table()["h100"], 1)
made = compile_only.compile_for(devices, sys.stdin.read().encode(), options)
print(json.dumps([compile_only.module_of(made)[1], compile_only.memory_of(made)]))
"""


@pytest.fixture
def real():
    """The folder of the package with ptxas."""
    need("cuda")
    import nvidia.cuda_nvcc

    return Path(next(iter(nvidia.cuda_nvcc.__path__)))


def compiled(folder):
    ran = [sys.executable, "-c", COMPILING, str(folder)]
    return json.loads(subprocess.check_output(ran, input=STEP, text=True))


@pytest.mark.thorough
def test_what_is_compiled_is_what_the_real_assembler_is_given(real, tmp_path):
    assert compiled(compile_only.tools(tmp_path)) == compiled(real)


def test_version_is_the_real_one(real, tmp_path):
    def version(folder):
        return subprocess.check_output([folder / "bin" / "ptxas", "--version"])

    assert version(compile_only.tools(tmp_path)) == version(real)
