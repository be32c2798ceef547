"""The versions of torch whose private parts are known to be as the frontend needs them.

check()      # a FlintError names them, if another one is installed
"""

from __future__ import annotations

from flint.host.environment import check_version

#: Tested by `make test-torch`.
KNOWN_VERSIONS = ">=2.12.1,<2.15"


def check() -> None:
    """Refuse another version.

    Raises:
        FlintError: it is not a known one.
    """
    check_version("torch", KNOWN_VERSIONS)
