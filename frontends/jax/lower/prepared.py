"""A step with its arguments on the mesh, ready to be traced."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, TypeVar

from jax.sharding import AbstractMesh
from jax.sharding import Mesh as DeviceMesh

from flint.capturing.request import Request
from flint.frontends.jax.failures import OTHER_MESH, explained
from flint.frontends.jax.internals.abstract_devices import abstract_devices
from flint.frontends.jax.internals.tracing import mesh_context
from flint.frontends.jax.lower.arguments import mesh_of, on_mesh
from flint.frontends.jax.lower.jitting import parameters_of
from flint.frontends.jax.lower.module_scopes import named_modules
from flint.frontends.jax.lower.own_meshes import in_order, of_devices
from flint.frontends.jax.lower.setup_arguments import arguments_of
from flint.frontends.jax.platforms import PLATFORMS
from flint.workload.programs import Level

T = TypeVar("T")
#: Checks the traced program, and raises if it cannot be captured.
Check = Callable[[Any], None]
NO_MESH = (
    "traced without a mesh in context: with one, a sharding annotation of the step does not fit "
    "its value"
)
#: Compute capability assumed for GPUs if no target is named: Hopper's.
ANY_GPU = (9, 0)


@dataclass(frozen=True, slots=True)
class Prepared:
    """A step with its arguments on the mesh, ready to be traced.

    Attributes:
        request: the request.
        mesh: the abstract mesh.
        args, kwargs: the arguments, abstract.
        settings: keywords of ``jax.jit`` for a function that is not jitted yet.
        platforms: JAX's names of the platforms to lower for; the first with a form of every op is
            used.
        capability: compute capability of the GPUs, if the devices are GPUs.
        devices: the mesh of devices that a program has built, which its shardings are on; None if
            they are on the abstract one.
    """

    request: Request
    mesh: AbstractMesh
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    settings: dict[str, Any]
    platforms: Sequence[str]
    capability: tuple[int, int]
    devices: DeviceMesh | None = None

    @property
    def grid(self) -> AbstractMesh | DeviceMesh:
        """The mesh that shardings are on."""
        return self.devices or self.mesh

    def in_context(self, work: Callable[[Check], T]) -> tuple[T, dict[str, int]]:
        """The result of ``work`` with the mesh in context, and warnings.

        Args:
            work: traces; is given a check of the traced program.

        Raises:
            FlintError: its error, explained.
        """
        try:
            if self.devices is not None:  # traced already, in a context of its own
                return self._attempt(work, mesh_context(None)), {}
            try:
                return self._attempt(work, mesh_context(self.mesh)), {}
            except ValueError as error:
                if OTHER_MESH in str(error):
                    return self._attempt(work, mesh_context(of_devices(self.mesh)), in_order), {}
                if "with_sharding_constraint" not in str(error):
                    raise
                return self._without_context(work, error), {NO_MESH: 1}
        except Exception as error:
            raise explained(error, self.request.name) from error

    def _attempt(
        self,
        work: Callable[[Check], T],
        context: AbstractContextManager[None],
        check: Check = lambda traced: None,
    ) -> T:
        asked = None if self.request.level is Level.LOGICAL else self.mesh
        with context, abstract_devices(asked, self.capability), named_modules():
            return work(check)

    def _without_context(self, work: Callable[[Check], T], error: ValueError) -> T:
        """With annotations that do not fit: constraints only with a mesh in context (flax)."""
        try:
            return self._attempt(work, contextlib.nullcontext())
        except Exception:  # it needs the mesh, so the first error is the one to fix
            raise error from None


def prepare(
    request: Request,
    platforms: Sequence[str] = PLATFORMS,
    capability: tuple[int, int] = ANY_GPU,
) -> Prepared:
    """The arguments of a step on the mesh that is captured for.

    Args:
        request: the step.
        platforms, capability: as of ``Prepared``.

    Raises:
        UsageError: arguments, mesh and shardings that do not fit each other.
        FlintError: setup fails.
        OtherFrameworkError: the step is not a JAX step.
    """
    settings = dict(request.settings)
    axis_types = settings.pop("axis_types", None)
    arguments = arguments_of(request, axis_types)
    mesh = mesh_of(arguments, request.shape, request.axes, axis_types)
    args, kwargs = on_mesh(arguments, mesh, parameters_of(request.function))
    return Prepared(request, mesh, args, kwargs, settings, platforms, capability)
