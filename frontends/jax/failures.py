"""Errors while a user's code runs, in one line with the user's own source line.

The idea: the relevant line for the user is the innermost one that belongs neither to JAX nor to
Flint (``user_frame``).

    except Exception as error:
        raise explained(error, "train_step") from error
"""

from __future__ import annotations

from flint.capturing.user_frames import one_line, user_frame
from flint.errors import FlintError, UsageError

#: Exception type -> its meaning for a step.
_MEANINGS = {
    "ConcretizationTypeError": "needs the value of a traced array",
    "TracerBoolConversionError": "branches on the value of a traced array",
    "TracerIntegerConversionError": "needs the value of a traced integer",
    "TracerArrayConversionError": "makes a numpy array of a traced array",
    "NonConcreteBooleanIndexError": "indexes by the values of a traced boolean array",
    "UnexpectedTracerError": "keeps a traced array from another trace",
}
#: Part of JAX's message for a shard_map over another mesh than the one in context.
OTHER_MESH = "should match the mesh passed to shard_map"
#: Part of JAX's message for a dim that shard_map cannot divide.
_INDIVISIBLE = "not evenly divisible by the corresponding mesh axis"
#: Part of JAX's message for an executable that is called with arrays without values.
_COMPILED_BEFORE = "to a function lowered and compiled for a particular signature"
_ADVICE = (
    "a capture must hold for all values: use jax.lax.cond, jax.numpy.where or a static argument"
)


def explained(error: BaseException, step: str, doing: str = "be traced") -> FlintError:
    """The ``FlintError`` for an error of a user's function.

    Args:
        error: the error.
        step: the function's name in messages.
        doing: the action that failed.
    """
    if isinstance(error, FlintError):
        return error
    where = user_frame(error) or step
    kind = type(error).__name__
    meaning = _MEANINGS.get(kind)
    if meaning is not None:
        return FlintError(f"{where}: {step} {meaning} ({kind}); {_ADVICE}")
    text = one_line(error)
    if kind == "IndivisibleError" or _INDIVISIBLE in str(error):
        return UsageError(f"{where}: the mesh does not divide a dim: {text}")
    if _COMPILED_BEFORE in text:
        return FlintError(
            f"{where}: {step} calls an executable that was compiled before the step was captured: "
            "lower and compile it in the step, or call the jitted function itself"
        )
    if OTHER_MESH in text:
        return UsageError(
            f"{where}: {step} maps over a mesh other than the capture's (jax.pmap has its own): "
            "omit shard_map's mesh, or use the one that setup receives; axes must have the same "
            "names, sizes and types, and jax.devices() has as many devices as the mesh only if the "
            f"command line gives the mesh (--mesh): {text}"
        )
    if "mesh_shape" in text and "Number of devices" in text:
        return UsageError(
            f"{where}: {step} builds a mesh of more devices than this process has: use the mesh "
            f"that setup receives, or capture with the command flint capture: {text}"
        )
    if "_device_assignment is not implemented" in text:
        return UsageError(
            f"{where}: {step} uses a mesh whose size differs from the capture's: use the mesh that "
            "setup receives, or bare PartitionSpecs"
        )
    return FlintError(f"{where}: {step} cannot {doing}: {kind}: {text}")
