"""Profiles of JAX -> workloads.

The idea: a profile has the program itself and the times of its instructions; a reader finds both,
and the rest is as for any saved program.

    workload = convert_profile(Path("plugins/profile/2026_11_21"))
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from flint import registry
from flint.capturing.converting import walk_options
from flint.mesh.mesh import Mesh
from flint.post_execution.modules import ModuleTimes, workload_of_times
from flint.workload.workload import Workload


def convert_profile(
    path: Path,
    *,
    mesh: Mesh | Sequence[int] | None = None,
    axes: Sequence[str] | None = None,
    step: str | None = None,
    trip_count: int | Mapping[str, int] | None = None,
    branch: int | Mapping[str, int] | None = None,
) -> Workload:
    """The program of a profile, with the times that it measured.

    Args:
        path: the profile folder, or the file in it.
        mesh, axes, step, trip_count, branch: as ``flint.convert_traces`` takes them.

    Raises:
        UsageError: no such step, a mesh that does not fit.
        FlintError: the profile is damaged or has no program.
    """
    times = registry.converter("xplane-times")(path, step)
    assert isinstance(times, ModuleTimes)
    grid = None
    if mesh is not None:
        grid = mesh if isinstance(mesh, Mesh) else Mesh(tuple(mesh), tuple(axes or ()))
    options = walk_options(trip_count=trip_count, branch=branch)
    return workload_of_times(times, mesh=grid, axes=axes, options=options)
