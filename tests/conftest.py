"""Settings for all tests.

JAX runs on the CPU unless told otherwise: several test processes would fight over a GPU's memory.

Hypothesis has no deadline: no test may depend on the machine's speed. The profile `ci` draws the
same examples in every run; without it every run looks at new ones.
"""

import os

from hypothesis import settings

os.environ.setdefault("JAX_PLATFORMS", "cpu")

settings.register_profile("default", deadline=None, print_blob=True)
settings.register_profile("ci", settings.get_profile("default"), derandomize=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))
