"""Makes the saved modules: real steps compiled for backends that are not there.

    python tests/data/optimized/make.py gpu FOLDER --target-config h100.txtpb NAME...
    python tests/data/optimized/make.py tpu FOLDER --topology v5e:2x4 NAME...
    python tests/data/optimized/make.py cpu FOLDER NAME...

Writes FOLDER/BACKEND_NAME.hlo.pb.gz, the serialised ``HloModuleProto`` of the executable, and of a
GPU's steps FOLDER/BACKEND_NAME.thunks.txt.gz, the sequence of what it issues.  Made with jax and
jaxlib 0.10.2; gpu with jax-cuda12-plugin and jax-cuda12-pjrt 0.10.2 and nvidia-cuda-nvcc-cu12 12.9;
tpu with libtpu 0.0.42.1.  No GPU and no TPU is needed.  ``README.md`` says which options made which
file.
"""

from __future__ import annotations

import argparse
import gzip
import importlib
import math
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

#: Name of a file -> step of a model.
STEPS = {
    "llama": "flint.models.jax.llama3:train_tiny",
    "8b": "flint.models.jax.llama3:train_8b_plain",
    "moe": "flint.models.jax.moe:train_tiny",
    "pipeline": "flint.models.jax.pipeline:train_tiny",
    "resnet": "flint.models.jax.resnet:train_tiny",
    "decode": "flint.models.jax.decode:decode_tiny",
    "ring": "flint.models.jax.ring_attention:train_tiny",
}


def devices(arguments: Any, count: int) -> Any:
    """Devices of the backend asked for: eight, or (GPU) any multiple of eight."""
    import jax
    from jax.experimental import topologies

    if arguments.backend == "cpu":
        return jax.devices()
    if arguments.backend == "gpu":
        described = topologies.get_topology_desc(
            platform="cuda",
            topology_name="",
            target_config=arguments.target_config.read_text(),
            topology=f"1x{count // 8}x8",
        )
        return described.devices
    described = topologies.get_topology_desc(platform="tpu", topology_name=arguments.topology)
    return described.devices


def environment(arguments: argparse.Namespace) -> None:
    """What must be set before jax is imported."""
    os.environ["JAX_PLATFORMS"] = "cpu"
    if arguments.backend == "cpu":
        os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
    if arguments.backend == "tpu":
        os.environ |= {
            "TPU_SKIP_MDS_QUERY": "1",
            "TPU_ACCELERATOR_TYPE": "v5litepod-8",
            "TPU_WORKER_HOSTNAMES": "localhost",
            "TPU_WORKER_ID": "0",
        }
    sys.path.insert(0, str(Path(__file__).parent))


def compiled(name: str, arguments: Any, options: dict[str, Any]) -> Any:
    """The executable of a step of ``STEPS`` or a program of ``programs.py``."""
    import jax
    from jax.sharding import Mesh

    if name in STEPS:
        module, attribute = STEPS[name].split(":")
        step = getattr(importlib.import_module(module), attribute)
        shape, axes, setup, *_ = step._flint
    else:
        from programs import AXES, PROGRAMS, SHAPE

        shape, axes = SHAPE, AXES
    where = devices(arguments, math.prod(shape))
    mesh = Mesh(np.array(where).reshape(shape), axes)
    with jax.set_mesh(mesh):
        if name in STEPS:
            function, args = step.__wrapped__, setup(mesh)
        else:
            function, args = PROGRAMS[name](mesh)
        jitted = function if hasattr(function, "trace") else jax.jit(function)
        return jitted.trace(*args).lower().compile(compiler_options=options or None)


def compiled_with_thunks(name: str, arguments: Any, options: dict[str, Any], stem: Path) -> Any:
    """The executable; what a GPU's would issue is next to it in ``.thunks.txt.gz``."""
    with tempfile.TemporaryDirectory() as folder:
        executable = compiled(name, arguments, options | {"xla_dump_to": folder})
        dumps = sorted(
            Path(folder).glob("*.thunk_sequence.txt"), key=lambda dump: dump.stat().st_size
        )
        if dumps:  # the largest one: tracing compiles additional small programs
            data = gzip.compress(dumps[-1].read_bytes(), 9, mtime=0)
            stem.with_name(stem.name + ".thunks.txt.gz").write_bytes(data)
    return executable


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("backend", choices=("gpu", "tpu", "cpu"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="+")
    parser.add_argument("--target-config", type=Path, help="GPU: XLA's description of the device")
    parser.add_argument("--topology", default="v5e:2x4")
    parser.add_argument("--option", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--suffix", default="", help="appended to the name of the file")
    arguments = parser.parse_args()
    environment(arguments)
    words = {"true": True, "false": False}
    stated = dict(option.split("=", 1) for option in arguments.option)
    options = {name: words.get(value, value) for name, value in stated.items()}
    arguments.folder.mkdir(parents=True, exist_ok=True)
    for name in arguments.names:
        stem = arguments.folder / f"{arguments.backend}_{name}{arguments.suffix}"
        executable = compiled_with_thunks(name, arguments, options, stem)
        module = executable.runtime_executable().hlo_modules()[0]
        file = stem.with_name(stem.name + ".hlo.pb.gz")
        file.write_bytes(gzip.compress(module.as_serialized_hlo_module_proto(), 9, mtime=0))
        print(file.name, file.stat().st_size, flush=True)


if __name__ == "__main__":
    main()
