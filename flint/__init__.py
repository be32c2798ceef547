"""Flint: model code or saved StableHLO in, exact per-rank workload graphs and execution traces out.

The idea: everything public is named here and only here, and nothing is imported before it is used,
so that `import flint` costs almost nothing and imports neither jax nor torch.

    import flint

    workload = flint.convert("step.mlirbc", mesh=(64, 8), axes=("data", "model"))
    workload.save("out")

There is no `__version__` here, on purpose: sympy, which torch imports, does `import flint` and
takes a module with a version from 0.6 to 0.10 for python-flint. The version of the distribution is
`importlib.metadata.version("flint-workload")`.
"""

import os.path as _path

# True for type checkers; importing `typing` itself takes longer than all of this.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from flint.capturing.decorator import capture
    from flint.capturing.saved_files import convert
    from flint.errors import FlintError, UsageError
    from flint.graph.graph import WorkloadGraph
    from flint.launching.marks import step
    from flint.mesh.mesh import Mesh
    from flint.post_execution.converting import convert_traces
    from flint.workload.loading import load
    from flint.workload.workload import Workload

__all__ = [
    "FlintError",
    "Mesh",
    "UsageError",
    "Workload",
    "WorkloadGraph",
    "capture",
    "convert",
    "convert_traces",
    "load",
    "step",
]

# The table behind `__getattr__`: public name -> the module that defines it. No module of the
# package may have the name of a public function, or importing it would replace the function.
_HOME = {
    "FlintError": "flint.errors",
    "Mesh": "flint.mesh.mesh",
    "UsageError": "flint.errors",
    "Workload": "flint.workload.workload",
    "WorkloadGraph": "flint.graph.graph",
    "capture": "flint.capturing.decorator",
    "convert": "flint.capturing.saved_files",
    "convert_traces": "flint.post_execution.converting",
    "load": "flint.workload.loading",
    "step": "flint.launching.marks",
}

# In the repository frontends/, converters/ and models/ are next to this folder, not in it.
# An installation maps them to flint.frontends etc.; but Python started in the repository root finds
# this folder before any installation and would look for the three inside it, in vain.
# So a source checkout also searches its own root. An installed wheel has them inside: no effect.
_beside = _path.dirname(_path.dirname(_path.abspath(__file__)))
if not _path.isdir(_path.join(_path.dirname(__file__), "converters")) and _path.isfile(
    _path.join(_beside, "converters", "chakra", "__init__.py")
):
    __path__.append(_beside)

# Hidden from type checkers, for which a module `__getattr__` means that every name exists.
if not TYPE_CHECKING:

    def __getattr__(name):
        home = _HOME.get(name)
        if home is None:
            raise AttributeError(f"module 'flint' has no attribute {name!r}")
        from importlib import import_module

        value = getattr(import_module(home), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
