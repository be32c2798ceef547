"""Questions of the partitioner's process about ops with a rule in Python: the format of both ends.

The idea: a question consists of the function's name, the op's key, the shapes of operands and
result and their shardings; an answer consists of shardings and, for ``partition``, the program of
one device.  Shardings travel as XLA's OpSharding messages.  The child writes a question into its
folder and waits for the answer there; it needs jaxlib only.

    register(folder)                 # child, before it compiles
    serve(folder, answer)            # parent, again and again while the child compiles
"""

from __future__ import annotations

import base64
import json
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from jaxlib import _jax, xla_client

#: The custom call that JAX puts in place of such an op.
TARGET = "CustomSPMDPartitioning"

_QUESTION, _ANSWER = "question", "answer"
_POLL = 0.002
#: The beginning of an answer that is an error of the user's function.
_FAILED = b"failed:"

Answer = Callable[[bytes], bytes]

#: In a process that stands between: what answers in place of JAX's own functions, by their order.
_instead: list[Callable[..., Any]] = []
_stands_between = False


def _shape_of(shape: Any) -> Any:
    if shape.is_tuple():
        return [_shape_of(item) for item in shape.tuple_shapes()]
    return {"dtype": shape.numpy_dtype().name, "dims": list(shape.dimensions())}


def _shape(written: Any) -> Any:
    if isinstance(written, list):
        return xla_client.Shape.tuple_shape([_shape(item) for item in written])
    name = written["dtype"]
    dtype = np.dtype(getattr(ml_dtypes, name, name))
    return xla_client.Shape.array_shape(dtype, tuple(written["dims"]))


def _text(sharding: Any) -> str:
    return base64.b64encode(sharding.to_proto().SerializeToString()).decode()


def _sharding(text: str) -> Any:
    proto: Any = xla_client.OpSharding()
    proto.ParseFromString(base64.b64decode(text))
    return xla_client.HloSharding.from_proto(proto)


def read_question(question: bytes) -> tuple[str, bytes, list[Any], list[Any]]:
    """Function ("partition", "infer", "propagate"), key, shapes, shardings."""
    written = json.loads(question)
    shapes = [_shape(item) for item in written["shapes"]]
    shardings = [_sharding(item) for item in written["shardings"]]
    return written["kind"], written["key"].encode(), shapes, shardings


def write_answer(shardings: Sequence[Any], module: bytes = b"") -> bytes:
    """Shardings, and the program of one device as MLIR bytecode."""
    return json.dumps([_text(item) for item in shardings]).encode() + b"\n" + module


def attending(answer: Answer | None) -> Callable[[Path], None] | None:
    """``serve`` with that answer; None without an answer."""
    return None if answer is None else partial(serve, answer=answer)


def serve(folder: Path, answer: Answer) -> None:
    """Answer the pending question in the folder, if there is one."""
    asked = folder / _QUESTION
    if not asked.is_file():
        return
    question = asked.read_bytes()
    asked.unlink()
    try:
        content = answer(question)
    except Exception as error:  # the user's function, or JAX's: the compiler reports it
        content = _FAILED + f"{type(error).__name__}: {error}".encode()
    _put(folder / _ANSWER, content)


def _put(path: Path, content: bytes) -> None:
    beside = path.with_name(f".{path.name}")
    beside.write_bytes(content)
    beside.rename(path)


def stand_between() -> None:
    """Let a fork of this process make XLA ask through a folder although jax is imported here.

    XLA keeps the first functions that are registered for an op, and jax registers its own when it
    is imported, so this comes before that.
    """
    global _stands_between
    if _stands_between or "jax._src.custom_partitioning" in sys.modules:
        return
    _stands_between = True
    original: Any = xla_client.register_custom_call_partitioner

    def either(place: int, own: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args: (_instead[place] if _instead else own)(*args)

    def registered(
        name: str, prop_user_sharding: Any, partition: Any, infer_sharding_from_operands: Any,
        **more: Any,
    ) -> None:  # fmt: skip
        own = prop_user_sharding, partition, infer_sharding_from_operands
        original(name, *(either(place, item) for place, item in enumerate(own)), **more)

    xla_client.register_custom_call_partitioner = registered


def register(folder: Path, plugin: Any = None) -> None:
    """Make XLA ask through a folder.

    Args:
        folder: shared with the process that answers.
        plugin: the C API of the PJRT plugin that compiles; None for jaxlib's own CPU client.
    """

    def ask(
        kind: str, key: bytes, shapes: list[Any], shardings: list[Any]
    ) -> tuple[list[Any], bytes]:
        content = {
            "kind": kind, "key": key.decode(),
            "shapes": [_shape_of(item) for item in shapes],
            "shardings": [_text(item) for item in shardings],
        }  # fmt: skip
        _put(folder / _QUESTION, json.dumps(content).encode())
        answered = folder / _ANSWER
        while not answered.is_file():  # the parent ends this process if it takes too long
            time.sleep(_POLL)
        reply = answered.read_bytes()
        answered.unlink()
        if reply.startswith(_FAILED):
            raise RuntimeError(reply.removeprefix(_FAILED).decode())
        head, _, module = reply.partition(b"\n")
        return [_sharding(item) for item in json.loads(head)], module

    def propagate(sharding: Any, shape: Any, key: bytes) -> Any:
        return ask("propagate", key, [shape], [sharding])[0][0]

    def partition(shapes: Any, shardings: Any, shape: Any, sharding: Any, key: bytes) -> Any:
        found, module = ask("partition", key, [*shapes, shape], [*shardings, sharding])
        return module, found[:-1], found[-1]

    def infer(shapes: Any, shardings: Any, shape: Any, key: bytes) -> Any:
        return ask("infer", key, [*shapes, shape], list(shardings))[0][0]

    if _stands_between and plugin is None:
        _instead[:] = propagate, partition, infer
        return
    more = {} if plugin is None else {"c_api": plugin}
    _jax.register_custom_call_partitioner(
        TARGET,
        propagate,
        partition,
        infer,
        can_side_effecting_have_replicated_sharding=True,
        **more,
    )
