"""Child process: XLA's partitioner over the named programs, one HLO dump each.

    python tests/hlo/partition.py OUTPUT_FOLDER [--optimize] NAME...

Writes OUTPUT_FOLDER/NAME.hlo.pb: an ``HloProto`` right after partitioning for 8 devices or, with
``--optimize``, the ``HloModuleProto`` of a whole CPU compilation.  Runs in its own process because
compiling with the partitioning passes alone always ends in an error, sometimes in an abort.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
ROOT = Path(__file__).resolve().parents[2]
DEVICES = 8
PASSES = (
    "flatten-call-graph,call-inliner,zero_sized_hlo_elimination,conditional-canonicalizer,"
    "shardy-xla,spmd-partitioning,dce,tuple-simplifier,cse,control-dep-rewriter,"
    "strip-memory-placement-annotations,async-collective-replacer"
)


def partitioned(module: Any) -> bytes:
    import numpy as np
    from jaxlib import _jax, xla_client

    client = xla_client.make_cpu_client(num_devices=DEVICES)
    options = xla_client.CompileOptions()
    build = options.executable_build_options
    options.num_partitions = build.num_partitions = DEVICES
    options.num_replicas = build.num_replicas = 1
    build.use_spmd_partitioning = build.use_shardy_partitioner = True
    devices = np.arange(DEVICES).reshape(1, DEVICES)
    build.device_assignment = xla_client.DeviceAssignment.create(devices)
    debug = build.debug_options
    with tempfile.TemporaryDirectory() as folder:
        debug.xla_dump_to = folder
        debug.xla_dump_hlo_pass_re = ".*spmd.*"
        debug.xla_dump_hlo_as_proto = True
        debug.xla_enable_hlo_passes_only = PASSES
        reason = "no error"
        try:
            client.compile_and_load(module, _jax.DeviceList(tuple(client.devices())), options)
        except Exception as error:  # expected: code generation has not been prepared
            reason = str(error)
        dumps = list(Path(folder).glob("*after_spmd-partitioning*.hlo.pb"))
        if not dumps:
            raise SystemExit(f"the partitioner left no dump: {reason}")
        return dumps[0].read_bytes()


def optimized(lowered: Any) -> bytes:
    module = lowered.compile().runtime_executable().hlo_modules()[0]
    return bytes(module.as_serialized_hlo_module_proto())


def main(folder: Path, names: list[str], optimize: bool) -> None:
    os.environ["JAX_PLATFORMS"] = "cpu"
    os.environ[
        "XLA_FLAGS"
    ] = (  # the HLO is the same however well LLVM optimises what is made of it
        f"--xla_force_host_platform_device_count={DEVICES} "
        "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
    )
    import jax
    import numpy as np
    from jax.sharding import Mesh
    from programs import MESH, PROGRAMS

    # Dumps name their source; the folder of this checkout is not part of it.
    jax.config.update("jax_hlo_source_file_canonicalization_regex", re.escape(f"{ROOT}/"))
    mesh = None
    if optimize:
        mesh = Mesh(np.array(jax.devices()).reshape(MESH.axis_sizes), MESH.axis_names)
    for name in names:
        function, arguments = PROGRAMS[name]()
        if optimize:
            arguments = jax.tree.map(lambda leaf: on_mesh(leaf, mesh), arguments)
        traced = jax.jit(function, donate_argnums=(0,)).trace(*arguments)
        lowered = traced.lower(lowering_platforms=("cpu",))
        data = optimized(lowered) if optimize else partitioned(lowered.compiler_ir("stablehlo"))
        (folder / f"{name}.hlo.pb").write_bytes(data)


def on_mesh(leaf: Any, mesh: Any) -> Any:
    import jax
    from jax.sharding import NamedSharding

    sharding = NamedSharding(mesh, leaf.sharding.spec)
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)


if __name__ == "__main__":
    wanted = [argument for argument in sys.argv[2:] if not argument.startswith("--")]
    main(Path(sys.argv[1]), wanted, "--optimize" in sys.argv)
