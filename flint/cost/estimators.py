"""Estimators by name: models of how long kernels take.

The idea: a simulation asks one function for the seconds of a graph's nodes.  Ours are in a table;
measured durations take precedence over any of them.

    estimator("systolic")(graph, load_system("tpu-v4-pod"))
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from flint.cost.kernels import Estimator, kernel_seconds
from flint.cost.systolic import systolic_seconds
from flint.errors import UsageError

#: Name -> seconds of a graph's nodes on a system.
ESTIMATORS: Final[Mapping[str, Estimator]] = {
    "kernel": kernel_seconds,
    "systolic": systolic_seconds,
}


def estimator(name: str) -> Estimator:
    """The estimator of that name.

    Raises:
        UsageError: no such estimator.
    """
    if name not in ESTIMATORS:
        raise UsageError(f"unknown estimator {name!r}; choose from: {', '.join(ESTIMATORS)}")
    return ESTIMATORS[name]
