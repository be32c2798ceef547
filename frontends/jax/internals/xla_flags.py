"""The program's ``XLA_FLAGS``, without those that the installed XLA does not know.

The idea: XLA ends a process that has a flag of another release, or of a vendor's own build.  Flags
change how a program is compiled for its device, which a capture does not do, so the others can be
left out.  A process of its own finds them.  Must be called before jax creates its client.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys

_NAME = "XLA_FLAGS"
_PARSE = "from jaxlib import xla_client; xla_client.CompileOptions()"
_SAYS = re.compile(rf"Unknown flags? in {_NAME}: (.*)")
#: Flags that every XLA knows, so that no process is needed.
_KNOWN = ("--xla_force_host_platform_device_count=", "--xla_dump_to=")


def drop_unknown() -> tuple[str, ...]:
    """Remove such flags from the environment; returns what to tell of them."""
    flags = os.environ.get(_NAME, "").split()
    if all(flag.startswith(_KNOWN) for flag in flags):
        return ()
    parsed = subprocess.run(
        [sys.executable, "-c", _PARSE], capture_output=True, text=True, check=False
    )
    said = _SAYS.search(parsed.stderr)
    unknown = said[1].split() if said is not None else []
    if not unknown:
        return ()
    os.environ[_NAME] = " ".join(flag for flag in flags if flag not in unknown)
    return (f"{_NAME}: left out, as the installed XLA does not know them: {' '.join(unknown)}",)
