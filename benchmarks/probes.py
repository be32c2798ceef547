"""The measured commands that ``flint`` has none for; each prints one JSON document.

python benchmarks/probes.py graph model.mlirbc         flint.convert, nothing written
python benchmarks/probes.py kernels model.mlirbc       ... and the passes to kernels
python benchmarks/probes.py stages model.mlirbc        reader and walker apart
python benchmarks/probes.py writing model.mlirbc 64,8 FOLDER 5
                                                       trace files against plain writes
python benchmarks/probes.py partitioner train.py:step 64,8 data,model
                                                       what a capture waits for XLA
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any


def graph(path: str) -> dict[str, Any]:
    """File to graph, as a user's program would."""
    begin = time.perf_counter()
    import flint

    workload = flint.convert(path)
    nodes = sum(len(program.graph) for program in workload.programs)
    return {"seconds": time.perf_counter() - begin, "nodes": nodes}


def kernels(path: str) -> dict[str, Any]:
    """File to graph, then to kernels; imports before the clock starts."""
    import flint
    from flint.passes import apply

    _import_readers()
    begin = time.perf_counter()
    workload = flint.convert(path)
    converted = time.perf_counter()
    made = apply(workload.graph, "kernel")
    end = time.perf_counter()
    return {"graph": converted - begin, "kernels": end - converted, "nodes": len(made)}


def stages(path: str) -> dict[str, Any]:
    """Reader and walker apart; imports before the clock starts.

    ``ops`` are the ops that were walked, ``stored`` also counts those of reducers and of functions
    that nobody calls: a reader reads them all.
    """
    from flint import registry
    from flint.capturing.saved_files import read_content
    from flint.host.packed_files import MEMORY_LIMIT
    from flint.stablehlo.walker import walk

    reader = registry.frontend("saved")
    _import_readers()
    begin = time.perf_counter()
    with reader(read_content(Path(path), MEMORY_LIMIT)) as records:
        module = records()
    read_at = time.perf_counter()
    walked = walk(module)
    end = time.perf_counter()

    def count(block: Any) -> int:
        return sum(1 + sum(map(count, op.regions)) for op in block.ops)

    return {
        "read": read_at - begin,
        "walk": end - read_at,
        "ops": walked.ops,
        "stored": sum(map(count, module.functions.values())),
    }


def writing(path: str, mesh: str, folder: str, rounds: str) -> dict[str, Any]:
    """The loop that writes the trace files, and plain writes of as many bytes, by turns.

    The loop's seconds are those between its first and its last report of progress, extended to all
    files.  Dirty pages are flushed in front of each, outside the measured time.
    """
    import flint

    workload = flint.convert(path, mesh=tuple(map(int, mesh.split(","))))
    out, loops, plains, total = Path(folder, "writing"), [], [], 0
    for _ in range(int(rounds)):
        reports: list[tuple[float, int]] = []

        def report(done: int, _: int, into: list[tuple[float, int]] = reports) -> None:
            into.append((time.perf_counter(), done))

        os.sync()
        workload.save(out, progress=report)
        (first, before), (last, after) = reports[0], reports[-1]
        loops.append((last - first) * after / (after - before))
        files = sorted((out / "et").glob("*.et"))
        distinct = list({file.stat().st_ino: file.stat().st_size for file in files}.values())
        content = max(files, key=lambda file: file.stat().st_size).read_bytes()
        shutil.rmtree(out)
        os.sync()
        plains.append(plain(out, content, distinct))
        total = sum(distinct)
    return {
        "loop": median(loops),
        "plain": median(plains),
        "share": median(b / a for a, b in zip(loops, plains, strict=True)),
        "bytes": total,
    }


def partitioner(step: str, mesh: str, axes: str) -> dict[str, Any]:
    """A capture, and how long it waited for its child's result; its start beforehand included."""
    import runpy

    from flint.frontends.jax.partition.partitioning import Partitioner
    from flint.frontends.jax.requests import Compilation

    file, _, name = step.rpartition(":")
    capture = runpy.run_path(file)[name]
    waited = []
    run = Partitioner.run

    def timed(self: Partitioner, compilation: Compilation) -> bytes:
        begin = time.perf_counter()
        result = run(self, compilation)
        waited.append(time.perf_counter() - begin)
        return result

    Partitioner.run = timed  # type: ignore[method-assign]  # to look at it, in this process only
    shape = tuple(map(int, mesh.split(",")))
    workload = capture.at(mesh=shape, axes=tuple(axes.split(","))).capture()
    return {"partitioner": waited[0], "nodes": len(workload.graph)}


def plain(folder: Path, content: bytes, sizes: list[int]) -> float:
    """Seconds to write files of these sizes to ``folder``, one call each, from one buffer."""
    folder.mkdir()
    buffer = memoryview(content)
    begin = time.perf_counter()
    for number, size in enumerate(sizes):
        file = os.open(f"{folder}/{number}", os.O_WRONLY | os.O_CREAT, 0o666)
        os.write(file, buffer[:size])
        os.close(file)
    seconds = time.perf_counter() - begin
    shutil.rmtree(folder)
    return seconds


def _import_readers() -> None:
    import flint.capturing.converting
    import flint.stablehlo.packed.packing  # noqa: F401


PROBES = {
    "graph": graph,
    "kernels": kernels,
    "stages": stages,
    "writing": writing,
    "partitioner": partitioner,
}


def main() -> None:
    """The command line."""
    print(json.dumps(PROBES[sys.argv[1]](*sys.argv[2:])))


if __name__ == "__main__":
    main()
