"""What the tests of the optimized level share: what can run here, and captures made once."""

from __future__ import annotations

import pytest

from flint.capturing.targets import targets
from tests.frontends.jax.compile import steps

MISSING = {target.platform: target.missing for target in targets()}


@pytest.fixture(params=["cuda", "tpu"])
def platform(request):
    """Each platform that can be compiled for here."""
    need(request.param)
    return request.param


@pytest.fixture(scope="session")
def compiled():
    """(step, target, mesh, compiler options) -> workload."""
    known = {}

    def get(name, target="h100", mesh=(4, 2), **options):
        need("cuda" if target[0] != "t" else "tpu")
        key = (name, target, mesh, *sorted(options.items()))
        if key not in known:
            step = getattr(steps, name).at(mesh)
            known[key] = step.capture(
                level="optimized", target=target, options={"compiler_options": options}
            )
        return known[key]

    return get


@pytest.fixture(scope="session")
def partitioned():
    """(step, mesh) -> workload."""
    known = {}

    def get(name, mesh=(4, 2)):
        if (name, mesh) not in known:
            known[name, mesh] = getattr(steps, name).at(mesh).capture()
        return known[name, mesh]

    return get


def need(platform):
    """Skip where a platform cannot be compiled for."""
    if MISSING[platform]:
        pytest.skip(MISSING[platform])
