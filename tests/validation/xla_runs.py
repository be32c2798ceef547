"""Steps of a module of this folder run for real on host devices, and compared with captures.

runs = Runs(folder, xla_windows, ("plain", "strided"))
runs.compare("plain", "strided").ok
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from flint.validation.validating import validate
from tests.frontends.jax.comparing import child_environment


class Runs:
    """Profiles of steps, and reports of captures of others against them; each captured once."""

    def __init__(self, folder, module, names):
        self.module, self._captures = module, {}
        places = [f"{name}={module.__name__}:{name}" for name in names]
        run = subprocess.run(
            [sys.executable, str(Path(__file__).parent / "profiling.py"), str(folder), *places],
            capture_output=True, text=True, env=child_environment(), timeout=600, check=False,
        )  # fmt: skip
        assert run.returncode == 0, run.stderr
        self.profiles = {name: folder / name for name in names}

    def compare(self, name, run="", branch=None):
        """Report of a step's capture, of one branch, against the run of it or of another step."""
        if (name, branch) not in self._captures:
            options = {} if branch is None else {"branch": branch}
            self._captures[name, branch] = getattr(self.module, name).capture(options=options)
        return validate(self._captures[name, branch], [self.profiles[run or name]])


def named(report):
    """What differs and counts, a line each."""
    return "\n".join(f"{item.what} {item.op}" for item in report.differences if item.counts)
