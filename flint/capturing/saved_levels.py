"""The level at which a saved program is converted: as saved, partitioned by XLA, or compiled by a
backend's compiler.

The idea: partitioning and compiling replace the records, and the bytes that are kept with the
workload; everything after that is the same.

    taken = at_level(content, module, grid, wanted)
    walk(taken.module, taken.mesh)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from flint import registry
from flint.capturing import targets
from flint.errors import FlintError, UsageError
from flint.host.stages import stage
from flint.mesh.mesh import Mesh
from flint.workload.programs import Level, Listing

if TYPE_CHECKING:
    from flint.host.packed_files import Content
    from flint.stablehlo.read.records import Module
    from flint.workload.compiler_report import CompilerReport

_LEVELS = (*Level, targets.AUTO)


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedLevel:
    """How a saved program is to be converted.

    Attributes:
        level: "logical" (as saved), "partitioned", "optimized" or "auto".
        target: what to compile for; None: auto takes the default.
        options: options of the compiler, name -> value.
        whole: whether the program starts at its ``main`` and fills the mesh; otherwise only a
            program of each device can be converted, as saved.
    """

    level: str = Level.PARTITIONED
    target: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    whole: bool = True

    def check(self) -> None:
        """Check that the request makes sense.

        Raises:
            UsageError: it does not.
        """
        if self.level not in _LEVELS:
            raise UsageError(f"unknown level {self.level!r}; choose from: {', '.join(_LEVELS)}")
        if self.level in (Level.LOGICAL, Level.PARTITIONED):
            if self.target is not None or self.options:
                raise UsageError("a target and compiler options are for --level optimized")
            return
        if not self.whole:
            raise UsageError(
                "--entry and --replicas are for programs converted as saved: leave out --level"
            )
        if self.level == Level.OPTIMIZED:
            if self.target is None:
                raise UsageError(targets.NO_TARGET.format(targets.listed()))
            targets.target(self.target)


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """A program to convert.

    Attributes:
        module: its records.
        mesh: the given mesh, or that of the program before compilation.
        saved: the kept bytes and their file suffix.
        listing: makes the same for people to read.
        compiled: the compiler's report, if it was compiled.
    """

    module: Module
    mesh: Mesh | None
    saved: tuple[bytes, str]
    listing: Listing | None = None
    compiled: CompilerReport | None = None


def at_level(content: Content, module: Module, mesh: Mesh | None, wanted: SavedLevel) -> Taken:
    """A program as saved, partitioned, or compiled.

    Args:
        content: content of the file.
        module: its records.
        mesh: the mesh that the user gave.
        wanted: the level; checked.

    Raises:
        UsageError: it is already compiled, comes from PyTorch, or an option is wrong.
        FlintError: the compiler fails, and the level is not auto.
    """
    from flint.stablehlo.collectives.devices import mesh_of, world_of
    from flint.workload.names import module_suffix

    as_saved = Taken(
        module=module, mesh=mesh, saved=(content.data, module_suffix(content.path.name))
    )
    final = module.optimized or module.scheduled or bool(module.issues)
    if wanted.level == Level.LOGICAL or (final and wanted.level != Level.OPTIMIZED):
        return as_saved
    world = world_of(module, mesh)
    grid = mesh or mesh_of(module, world)

    def taken(made: Any) -> Taken:
        return Taken(
            module=made.module, mesh=grid, saved=made.saved, listing=made.listing,
            compiled=made.compiled,
        )  # fmt: skip

    why = ""
    if wanted.level == targets.AUTO:
        why = targets.obstacle(wanted.target or targets.USUAL, world.size)
    if not why and wanted.level != Level.PARTITIONED:
        target = targets.target(wanted.target or targets.USUAL).name
        stage(f"compiling {content.path.name} for {target}")
        try:
            return taken(
                registry.saved_compiler()(content, module, grid.shape, target, wanted.options)
            )
        except FlintError as error:
            if wanted.level == Level.OPTIMIZED:
                raise
            why = str(error)
    if not module.partitioned:
        if not wanted.whole:
            raise UsageError(
                f"{content.path}: --entry and --replicas are for programs of one device, and this "
                "program's shapes are global"
            )
        stage(f"partitioning {content.path.name} for {world.size:,} devices")
        as_saved = taken(registry.saved_partitioner()(content, module, grid.shape))
    if why:
        level = "as saved" if module.partitioned else "partitioned"
        as_saved.module.warnings[f"level auto: {level}, because {why}"] = 1
    return as_saved
