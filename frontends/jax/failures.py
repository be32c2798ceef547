"""What goes wrong while a user's code runs, in one line with the user's own source line.

The idea: the innermost frame that is neither JAX's nor ours is where the user has to look.

    except Exception as error:
        raise explained(error, "train_step") from error
"""

from __future__ import annotations

import os
import sysconfig
import traceback
from pathlib import Path

import jax

from flint.errors import FlintError, UsageError

_SITE = tuple({sysconfig.get_path(name) for name in ("purelib", "platlib", "stdlib")})
_OURS = (str(Path(__file__).parent), str(Path(__file__).parents[2] / "flint"))
_JAX = tuple(str(Path(jax.__file__).parent.parent / name) for name in ("jax", "jaxlib"))

#: Exception type -> what it means for a step.
_MEANINGS = {
    "ConcretizationTypeError": "needs the value of a traced array",
    "TracerBoolConversionError": "branches on the value of a traced array",
    "TracerIntegerConversionError": "needs the value of a traced integer",
    "TracerArrayConversionError": "makes a numpy array of a traced array",
    "NonConcreteBooleanIndexError": "indexes by the values of a traced boolean array",
    "UnexpectedTracerError": "keeps a traced array from another trace",
}
_ADVICE = "a capture holds for all values: use jax.lax.cond, jax.numpy.where or a static argument"


def explained(error: BaseException, step: str) -> FlintError:
    """An error of ours for whatever a user's function raised.

    Args:
        error: what it raised.
        step: what messages call the function.
    """
    if isinstance(error, FlintError):
        return error
    where = place_of(error) or step
    kind = type(error).__name__
    meaning = _MEANINGS.get(kind)
    if meaning is not None:
        return FlintError(f"{where}: {step} {meaning} ({kind}); {_ADVICE}")
    text = first_sentence(error)
    if kind == "IndivisibleError" or "does not evenly divide" in str(error):
        return UsageError(f"{where}: the mesh does not divide a dim: {text}")
    if "_device_assignment is not implemented" in text:
        return UsageError(
            f"{where}: {step} uses a mesh of devices of another size than the capture's: take the "
            "mesh that setup is given, or bare PartitionSpecs"
        )
    return FlintError(f"{where}: {step} cannot be traced: {kind}: {text}")


def place_of(error: BaseException) -> str:
    """``file.py:12`` of the user's innermost frame, "" when there is none."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith((*_JAX, *_OURS)) and not frame.filename.startswith("<")
    ]
    own = [frame for frame in frames if not frame.filename.startswith(_SITE)]
    if isinstance(error, SyntaxError) and error.filename:
        return f"{_short(error.filename)}:{error.lineno}"
    for frame in reversed(own or frames):
        return f"{_short(frame.filename)}:{frame.lineno}"
    return ""


def first_sentence(error: BaseException) -> str:
    """The first paragraph of an error's text, in one line."""
    text = str(error).strip().split("\n\n")[0]
    return " ".join(text.split())[:500] or "no message"


def _short(path: str) -> str:
    relative = os.path.relpath(path)
    return path if relative.startswith("..") else relative
