"""The versions of jax and jaxlib whose private parts are as this package uses them.

The idea: the modules beside this one import private parts as they are loaded.  With an untried jax
that would be an ImportError that names a module; this check comes first and names the versions.
"""

from __future__ import annotations

from flint.host.environment import check_version

#: Versions of jax and jaxlib whose private parts are known to be as used here.
KNOWN_VERSIONS = ">=0.10.2,<0.11"


def check_versions() -> None:
    """Refuse untried versions.

    Raises:
        FlintError: which version is there and which are known to work.
    """
    check_version("jax", KNOWN_VERSIONS)
    check_version("jaxlib", KNOWN_VERSIONS)
