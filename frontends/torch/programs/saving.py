"""``torch.save`` of host data into memory and, with ``--allow checkpoints``, into files.

The idea: configurations, states of data loaders and random numbers are real and are written as in
any run.  A tensor of the device, or a parameter on any device, has no value, so that a file with
one would be made up.  An object is not written if pickling finds such a tensor anywhere in it.
What is saved into a buffer is the program's own to write (data sets that are prepared once).  A
buffer for what has no value gets a line that says so, by which it is found when it is loaded.

    torch.save({"epoch": 3, "order": torch.randperm(8)}, "state.pt")        # is written
    torch.save(model.state_dict(), "model.pt")                              # a warning
"""

from __future__ import annotations

import functools
import io
import pickle  # noqa: TID251  # only to see what would be written
from typing import Any

import torch
from torch import serialization
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.utils._python_dispatch import _disable_current_modes

from flint.frontends.torch.context import capture
from flint.frontends.torch.patching import around
from flint.frontends.torch.programs import pickles
from flint.frontends.torch.programs.host_tensors import is_host
from flint.frontends.torch.shims.checkpoints import forget, keep, note
from flint.frontends.torch.user_lines import at_user_line


def apply(*, files: bool) -> None:
    """Let programs save data that has values.

    Args:
        files: into files as well, not only into buffers.
    """
    around(torch, "save", functools.partial(_save, files))
    pickles.apply()


class _NoValue(Exception):
    """A tensor that cannot be written."""


class _Looking(pickle.Pickler):
    """Examines everything that would be written, and does not write tensors."""

    def reducer_override(self, item: Any) -> Any:
        if isinstance(item, torch.Tensor):
            if not is_host(item):
                raise _NoValue
            return int, ()
        return NotImplemented

    def persistent_id(self, item: Any) -> Any:
        return "storage" if isinstance(item, torch.storage.TypedStorage) else None


def _save(files: bool, plain: Any, obj: Any, f: Any, *args: Any, **kwargs: Any) -> None:
    if not (files or isinstance(f, io.BytesIO)):
        plain(obj, f, *args, **kwargs)
        return
    try:
        _Looking(io.BytesIO()).dump(obj)
    except _NoValue:
        keep(obj, f)
        what = "nothing"
        if isinstance(f, io.BytesIO):
            f.write(note(obj))
            what = "a note only"
        capture().notice(
            f"torch.save{at_user_line()} writes {what}: it contains parameters or device "
            "tensors, which have no values in a capture"
        )
        return
    forget(f)
    with unset_fake_temporarily(), _disable_current_modes():
        serialization.save(obj, f, *args, **kwargs)
