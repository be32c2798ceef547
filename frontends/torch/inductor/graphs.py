"""Which graphs Dynamo makes of a program's code: those that it makes on a GPU, or it is told.

The idea: Dynamo ends a graph where it cannot continue, and what follows is a graph of its own; that
is as on a GPU, except in a function that stands in place of PyTorch's.  Code that must be one graph
(``fullgraph=True``) is an error then; here it is divided, because a capture is of use all the same.
Sizes are numbers, also those that the program marks as dynamic, because a kernel's work is that of
the sizes it was made for.

Private parts of torch._dynamo, as in torch 2.12 to 2.14 (``adapter.py`` has the rest).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from flint.frontends.torch.context import capture
from flint.frontends.torch.patching import always_around
from flint.frontends.torch.user_lines import at_line, is_frontends


def apply() -> None:
    """Watch what becomes a graph, permanently."""
    from torch._dynamo.output_graph import OutputGraph
    from torch._dynamo.variables import builder

    always_around(torch._dynamo, "optimize", _optimized)
    always_around(OutputGraph, "compile_subgraph", _ended)
    always_around(builder, "_automatic_dynamic", _sizes)


def _optimized(optimize: Any, *args: Any, nopython: bool = False, **kwargs: Any) -> Any:
    """What compiles: an end of its graph is an error that can be survived."""
    if nopython:
        kwargs["error_on_graph_break"] = True
    return optimize(*args, **kwargs)


@contextlib.contextmanager
def as_one(tracer: Any) -> Iterator[None]:
    """Within it, code that must be one graph is traced so: numbers read from tensors are part of
    it."""
    from torch._dynamo import utils

    before = tracer._one_graph
    tracer._one_graph = before or utils._get_error_on_graph_break()
    try:
        yield
    finally:
        tracer._one_graph = before


def divides(error: Exception, text: str, where: str) -> bool:
    """Whether tracing failed of code that must be one graph; if so, it need not be one now.

    Args:
        error: with which it failed, and its text.
        where: the code.
    """
    from torch._dynamo import exc, utils

    if not utils._get_error_on_graph_break():
        return False
    utils._set_error_on_graph_break(False)
    if isinstance(error, exc.Unsupported | exc.UserError):
        capture().not_compiled[
            f"torch.compile{where}: not one graph, which is an error with fullgraph=True: divided "
            f"({text})"
        ] += 1
    return True


def _ended(compile_subgraph: Any, graph: Any, frames: Any, reason: Any, **more: Any) -> Any:
    """The end of a graph, or of the code."""
    stack = reason.user_stack
    ours = [frame.name for frame in stack if is_frontends(frame.filename)]
    if reason.graph_break and ours:
        users = [frame for frame in stack if not is_frontends(frame.filename)] or stack
        where = at_line(users[-1].filename, users[-1].lineno)
        capture().not_compiled[
            f"torch.compile{where}: the graph ends at {ours[0]}, which Flint answers; on a GPU it "
            "may continue"
        ] += 1
    return compile_subgraph(graph, frames, reason, **more)


def _sizes(
    context: Any, tensor: Any, frames: Any, source: Any, static: bool, *more: Any, **named: Any
) -> Any:
    """How a tensor's sizes are seen; those of nested tensors are no numbers."""
    is_plain = not any(isinstance(size, torch.SymInt) for size in tensor.size())
    return context(tensor, frames, source, static or is_plain, *more, **named)
