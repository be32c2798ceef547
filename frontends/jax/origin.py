"""Where a JAX capture comes from, for its workload: the step, its program, the version of JAX.

The version tells whether a profile's ops have the names that the capture's have.

    origin("train_step", "9f86d0...")["version"]     # "0.10.2"
"""

from __future__ import annotations

import jax


def origin(function: str, sha256: str) -> dict[str, str]:
    """The source of a workload.

    Args:
        function: the name of the step.
        sha256: hexadecimal hash of its lowered program or programs.
    """
    return {
        "function": function, "framework": "jax", "version": jax.__version__, "sha256": sha256,
    }  # fmt: skip
