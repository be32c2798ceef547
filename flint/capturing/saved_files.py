"""Converting saved programs: a file in, a workload out.

The idea: the file's content is read once, and a frontend's process parses it into records;
meanwhile this process imports the modules that turn records into a workload.

    workload = convert("model.mlirbc", mesh=(64, 8), axes=("data", "model"))
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flint import registry
from flint.capturing.saved_levels import SavedLevel, at_level
from flint.errors import UsageError
from flint.host.collection import uncollected
from flint.host.packed_files import MEMORY_LIMIT, Content, read_once
from flint.mesh.mesh import Mesh, MeshLike, as_mesh

if TYPE_CHECKING:
    from flint.stablehlo.read.records import Module
    from flint.stablehlo.walker import Walked
    from flint.workload.workload import Workload

#: Advice about a large file.
_LARGER = ", a quarter of the memory limit of its reader: raise --memory-limit (in GiB)"


@uncollected
def convert(
    path: str | Path | Content,
    *,
    mesh: MeshLike | None = None,
    axes: Sequence[str] | None = None,
    trip_count: int | Mapping[str, int] | None = None,
    branch: int | Mapping[str, int] | None = None,
    reduce_scatter: bool = True,
    drop_barriers: bool = False,
    strict: bool = False,
    loop_lookahead: int | None = 0,
    fuse: bool = False,
    routing: Any = None,
    entry: str | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    replicas: bool = False,
    trusted: bool = False,
    memory_limit: int = MEMORY_LIMIT,
    level: str = "partitioned",
    target: str | None = None,
    compiler_options: Mapping[str, Any] | None = None,
) -> Workload:
    """Convert a saved program.

    Args:
        path: StableHLO (MLIR text, bytecode, portable artifact) or HLO (proto, text), gzip allowed;
            recognised by content.  A pipe or device is read once, to its end.
        mesh: device grid; must have as many devices as the module is for. Default: the module's
            own mesh, else one axis.
        axes: names of the mesh axes.
        trip_count: iterations of loops whose end depends on data: one number for all, or by loop
            name (``{"while_0": 10}``).
        branch: branch of conditionals that data decides: one number, or by name
            (``{"case_0": 1}``).
        reduce_scatter: recognise all-reduce + own slice as reduce-scatter; False keeps it as it is.
        drop_barriers: optimization barriers pass each operand through; else their results exist
            when all of their operands do.
        strict: unknown ops and custom calls are errors.
        loop_lookahead: loop iterations that may overlap; None for no limit.
        fuse: open composites (PyTorch's kernels) like a compiler, within the recorded order; False
            keeps each as one kernel.
        routing: how a router distributes tokens, which decides the sizes of ragged exchanges:
            "balanced", "zipf:1.2" (for 64 experts: "zipf:1.2/64"), a file of the experts' loads, or
            the loads. Default: they are counted at their bounds.
        entry: function to start from, if a module has several and no ``@main``.
        shapes: dims of arguments whose sizes a StableHLO program leaves open, in elements, by the
            argument's number from 0 or by its name (``{"1": (64, 128)}``).
        replicas: allow a mesh that is larger than the module's: it runs independent copies of the
            program, which do not communicate with each other.
        trusted: parse the file in this process. By default another process does it, because a file
            that no compiler wrote may crash the process that parses it.
        memory_limit: bytes of memory that the reading process may take; a file larger than a
            quarter of that, packed or unpacked, is refused.
        level: "partitioned": if shapes are global, XLA's partitioner first makes the program of
            each device; "logical": as saved; "optimized": XLA's compiler for ``target`` compiles
            the program first, with its sharding annotations or, if it is a per-device program, as
            it is; "auto": the same, if that compiler is installed, else partitioned.
        target: what the compiler compiles for (``flint targets``).
        compiler_options: XLA's flags by name; only for the optimized level.

    Raises:
        UsageError: a mesh that does not fit, options that make no sense, or a program that is
            already compiled or cannot be.
        FlintError: the file cannot be read, compiled or converted; the text says what and where.
    """
    wanted = SavedLevel(
        level=level, target=target, options=compiler_options or {},
        whole=entry in (None, "main") and not replicas,
    )  # fmt: skip
    wanted.check()
    content = path if isinstance(path, Content) else read_content(Path(path), memory_limit)
    grid = as_mesh(mesh, axes) if mesh is not None else None
    limits: dict[str, Any] = {"trusted": trusted, "memory_limit": memory_limit}
    source = {"file": content.path.name, "sha256": content.sha256}
    if shapes:
        content = registry.frontend("sizes of saved")(content, shapes, entry, **limits)
        stated = [f"{name}={'x'.join(map(str, sizes))}" for name, sizes in shapes.items()]
        source["shapes"] = ", ".join(stated)
    begin: Callable[..., AbstractContextManager[Callable[[], Module]]] = registry.frontend("saved")
    with begin(content, entry, **limits) as records:
        # Importing these takes as long as starting the reading process.
        from flint.capturing.converting import walk_options, workload_of
        from flint.stablehlo.walker import walk

        module = records()
    options = walk_options(
        trip_count=trip_count,
        branch=branch,
        reduce_scatter=reduce_scatter,
        drop_barriers=drop_barriers,
        strict=strict,
        loop_lookahead=loop_lookahead,
        fuse=fuse,
        routing=routing,
    )
    taken = at_level(content, module, grid, wanted)
    walked = walk(taken.module, taken.mesh, options, replicate=replicas)
    if axes is not None and grid is None:
        walked = _renamed(walked, axes)
    workload = workload_of(
        walked,
        taken.module,
        options=options,
        source=source,
        saved=taken.saved,
        listing=taken.listing,
    )
    return workload if taken.compiled is None else replace(workload, compiled=taken.compiled)


def read_content(path: Path, memory_limit: int) -> Content:
    """The content of a file that ``convert`` would read under that limit.

    Raises:
        FlintError: it cannot be read, or is larger than a quarter of the limit.
    """
    return read_once(path, memory_limit // 4, _LARGER)


def _renamed(walked: Walked, axes: Sequence[str]) -> Walked:
    if len(axes) != len(walked.mesh.shape):
        raise UsageError(
            f"--axes names {len(axes)} axes; the module's mesh is {walked.mesh}: give --mesh too"
        )
    return replace(walked, mesh=Mesh(walked.mesh.shape, tuple(axes)))
