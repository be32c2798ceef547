"""Systems by the names that drivers give their devices.

The idea: a profile names its devices; the system made of these devices tells what communication
would cost, and what share of the peak was reached.

    system_of_device("NVIDIA H100 80GB HBM3")        # "dgx-h100"
"""

from __future__ import annotations

import re
from typing import Final

#: Names that drivers give, the more specific first; PCIe cards have no such network.  JAX's
#: profiles describe GPUs by what they have (``Nvidia GPU, 132 cores, 85 GB``), and name TPUs.
_SYSTEMS: Final = (
    (re.compile(r"GB300"), "gb300-nvl72"),
    (re.compile(r"GB200"), "gb200-nvl72"),
    (re.compile(r"B300"), "dgx-b300"),
    (re.compile(r"B200"), "dgx-b200"),
    (re.compile(r"H200(?!.*NVL)"), "hgx-h200"),
    (re.compile(r"H100(?!.*(PCIe|NVL))", re.IGNORECASE), "dgx-h100"),
    (re.compile(r"A100(?!.*PCIE)", re.IGNORECASE), "dgx-a100"),
    (re.compile(r"MI300X|AMD GPU, 304 cores, 206 GB"), "mi300x-8"),
    (re.compile(r"MI325X"), "mi325x-8"),
    (re.compile(r"MI350X"), "mi350x-8"),
    (re.compile(r"MI355X"), "mi355x-8"),
    (re.compile(r"Nvidia GPU, 132 cores, 8\d GB", re.IGNORECASE), "dgx-h100"),
    (re.compile(r"Nvidia GPU, 132 cores, 15\d GB", re.IGNORECASE), "hgx-h200"),
    (re.compile(r"TPU v4$"), "tpu-v4-pod"),
    (re.compile(r"TPU v5( lite|e)$", re.IGNORECASE), "tpu-v5e-pod"),
    (re.compile(r"TPU v5p?$"), "tpu-v5p-pod"),
    (re.compile(r"TPU v6( lite|e)$", re.IGNORECASE), "tpu-v6e-pod"),
    (re.compile(r"TPU ?v?7x?$"), "tpu-v7x-pod"),
)


def system_of_device(name: str) -> str | None:
    """The system with such devices; None if none is known.

    Args:
        name: the name that a driver gives a device.
    """
    return next((system for pattern, system in _SYSTEMS if pattern.search(name)), None)
