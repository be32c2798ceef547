"""The numbers of devices on which a program puts tensors.

The idea: a process has one device here, whatever its number; in a run, one that puts tensors on
``cuda:0`` and on ``cuda:1`` computes on both, and copies between them.  So that nobody takes the
capture for that run, both numbers are named, each with its line.

    put_on(of_number(1))       # x.to("cuda:1")
"""

from __future__ import annotations

from typing import Any

import torch

from flint.frontends.torch.cluster.device import NAME
from flint.frontends.torch.user_lines import at_user_line
from flint.launching.notes import noted

_SEVERAL = (
    "tensors are put on cuda:{}{} and on cuda:{}{} by one process, which has one device here: it "
    "does the work of both, and what moves between them is missing; give each device a process"
)
#: Number -> the object that stands for the device of that number: a device keeps no other mark.
_devices: dict[int, torch.device] = {}
#: The number of the first device with a number on which a tensor was put, and where; others.
_seen: dict[int, str] = {}


def of_number(number: int | None) -> torch.device:
    """The process's device, as the program numbers it; None: it does not."""
    if number is None:
        return torch.device(NAME, 0)
    return _devices.setdefault(int.__int__(number), torch.device(NAME, 0))


def number_of(device: Any) -> int | None:
    """The number of a device of ``of_number``; None for any other object."""
    return next((number for number, known in _devices.items() if known is device), None)


def put_on(device: Any) -> None:
    """A tensor is put on a device: count the second number, and later ones, as a warning."""
    number = number_of(device)
    if number is None or number in _seen:
        return
    _seen[number] = at_user_line()
    if len(_seen) > 1:
        first, where = next(iter(_seen.items()))
        noted[_SEVERAL.format(first, where, number, _seen[number])] += 1
