"""Steps of a module of this folder run for real on host devices, and compared with captures.

runs = Runs(host_runs, xla_windows)
runs.compare("plain", "strided").ok
"""

from __future__ import annotations

from flint.validation.validating import validate


class Runs:
    """Profiles of steps, and reports of captures of others against them; each captured once."""

    def __init__(self, host_runs, module):
        self.module, self._captures, self._runs = module, {}, host_runs

    def profile(self, name):
        """Folder of the profile of a step's run."""
        return self._runs[f"{self.module.__name__}:{name}"]

    def compare(self, name, run="", branch=None):
        """Report of a step's capture, of one branch, against the run of it or of another step."""
        if (name, branch) not in self._captures:
            options = {} if branch is None else {"branch": branch}
            self._captures[name, branch] = getattr(self.module, name).capture(options=options)
        return validate(self._captures[name, branch], [self.profile(run or name)])


def named(report):
    """What differs and counts, a line each."""
    return "\n".join(f"{item.what} {item.op}" for item in report.differences if item.counts)
