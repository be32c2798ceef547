"""Missing files of tokens and text.

The idea: a made-up file of tokens is a sparse file of zeros, which takes no disk space, and 0 is a
token of every vocabulary.  It is as large as the program asks for, or larger than anything that a
step reads.

    np.memmap("train.bin", dtype=np.uint16, mode="r")      # 512 Mi tokens, all of them 0
"""

from __future__ import annotations

import io
import math
import mmap
import os
import pathlib
import sys
import tempfile
from typing import Any

import numpy as np

from flint.capturing.user_frames import is_ours, is_programs
from flint.host.readable import human_bytes
from flint.launching.stand_ins import words
from flint.launching.stand_ins.missing import Made, StandIn

#: Bytes of a file of tokens of unknown size, and of one that is read as a whole.
_MAPPED, _READ = 1 << 30, 1 << 24
#: Python's code of paths: a file, in later versions a folder.
_PATHS = pathlib.__file__.removesuffix(f"{os.sep}__init__.py")
#: Number of words of a text.
_TEXT = 1 << 17


def _mapped(
    kind: Any, filename: Any, dtype: Any = np.uint8, mode: Any = "r+", offset: int = 0,
    shape: Any = None, order: Any = "C",
) -> Made:  # fmt: skip
    size = np.dtype(dtype).itemsize
    if shape is None:
        count = (_MAPPED - offset) // size
    else:
        count = math.prod(shape) if isinstance(shape, tuple | list) else int(shape)
    with tempfile.NamedTemporaryFile(prefix="flint-") as file:
        os.ftruncate(file.fileno(), offset + count * size)
        made: Any = np.memmap(file.name, dtype, mode, offset, shape, order)
    # Else the system makes 32 pages of zeros wherever one is read.
    made._mmap.madvise(mmap.MADV_RANDOM)
    return made, f"{filename} has {human_bytes(offset + count * size)} of zeros"


def _is_read(kind: Any, file: Any, dtype: Any = None, mode: Any = "r+", *_: Any, **__: Any) -> bool:
    return mode not in ("w+", "write")


def _read(file: Any, dtype: Any = float, count: int = -1, *_: Any, **__: Any) -> Made:
    kind = np.dtype(dtype)
    number = count if count >= 0 else _READ // kind.itemsize
    return np.zeros(number, kind), f"{file} has {human_bytes(number * kind.itemsize)} of zeros"


def _text(file: Any, *_: Any, **__: Any) -> Made:
    return io.StringIO(words.text(_TEXT)), f"{file} has {_TEXT:,} words"


def _is_text(file: Any, mode: str = "r", *_: Any, **__: Any) -> bool:
    """Whether the program itself opens a text; libraries, and Python's own while it imports them,
    also look for optional files."""
    named = isinstance(file, str | os.PathLike) and str(file).endswith(".txt")
    return named and mode in ("r", "rt") and is_programs(_opener())


def _opener() -> str:
    """The file of the code that opens a file."""
    frame = sys._getframe(1)
    file = frame.f_code.co_filename
    while frame.f_back is not None and (is_ours(file) or file.startswith(_PATHS)):
        frame = frame.f_back
        file = frame.f_code.co_filename
    return file


STAND_INS = (
    StandIn("numpy", "memmap.__new__", _mapped, _is_read),
    StandIn("numpy", "fromfile", _read),
    StandIn("builtins", "open", _text, _is_text),
    StandIn("io", "open", _text, _is_text),
)
