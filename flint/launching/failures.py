"""A program that failed, in one line: its own line, the error, what caused it and what to do.

The idea: the innermost line that is the program's or a library's is where to look; a library often
raises its own error from another one that says more.

    raise_failure(request, begun, error, folder)
        # train.py:4: the program failed: RuntimeError: map; its cause is KeyError: 'text'
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

from flint.capturing.user_frames import one_line, user_frame
from flint.errors import FlintError
from flint.launching.hooks import Hooks, hooks, list_steps
from flint.launching.program import ProgramRequest
from flint.launching.stand_ins import missing
from flint.launching.unmet_imports import own_files, unmet

#: What Python's ``input`` says where there is none.
_NO_INPUT = "EOF when reading a line"
_ADVICE: Mapping[type[BaseException], str] = {
    ModuleNotFoundError: "; install it beside Flint",
    ImportError: "; install the version that the program needs beside Flint",
    FileNotFoundError: "; the program needs that file here, also in a capture",
    FileExistsError: "; a capture runs the program once for each rank that it records, and again "
    "for some steps: what it made before is still there, so let it overwrite that",
}


def raise_failure(
    request: ProgramRequest, begun: Mapping[str, Hooks], error: BaseException, folder: Path
) -> NoReturn:
    """Raise the error that a program ended with, as one line.

    If its steps are to be listed, those that it ran before are the list, with this line.

    Args:
        request: the request.
        begun: the hooks of the frameworks that the program has imported.
        error: the program's.
        folder: for files that its process leaves.

    Raises:
        FlintError: always.
    """
    where = user_frame(error)
    for hook in begun.values():
        if not isinstance(error, FlintError):
            error = hook.cause(error)
    where = user_frame(error) or where or request.program.name
    if request.lists_steps:
        said = str(error) if isinstance(error, FlintError) else _line(where, error, begun)
        list_steps(folder, begun, said)
    if isinstance(error, FlintError):
        raise error
    raise FlintError(f"{_line(where, error, begun)}{_repeated(begun)}") from error


def _line(where: str, error: BaseException, begun: Mapping[str, Hooks]) -> str:
    advice = missing.advice(error) or _advice(error) or _assumed(begun)
    return f"{where}: the program failed: {_said(error)}{_cause(error)}{advice}"


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: {one_line(error)}"


def _cause(error: BaseException) -> str:
    """What a library raised its own error from, which may say less than that."""
    first = error
    while first.__cause__ is not None and not type(first.__cause__).__module__.startswith("jax"):
        first = first.__cause__
    if first is error or one_line(first) in one_line(error):
        return ""
    where = user_frame(first)
    return f"; its cause is {_said(first)}{f' at {where}' if where else ''}"


def _assumed(begun: Mapping[str, Hooks]) -> str:
    """The value that was assumed and the data made up last, from which an error may follow."""
    assumed = [text for hook in begun.values() for text in hook.assumed()][-1:]
    texts = [text.partition("; ")[0] for text in (*assumed, missing.last_note()) if text]
    return f"; this may follow from: {' or from '.join(texts)}" if texts else ""


def _repeated(begun: Mapping[str, Hooks]) -> str:
    """What the program did again and again before, and may be its step."""
    found = next(filter(None, (hook.repeated() for hook in begun.values())), "")
    return f"; before that it called {found}: --step NAME captures that" if found else ""


def _advice(error: BaseException) -> str:
    """What to do about an error; files that end too early raise EOFError, too."""
    if isinstance(error, EOFError) and str(error) == _NO_INPUT:
        return ": it waits for input, but a capture has none; give the input as arguments"
    advice = next((text for kind, text in _ADVICE.items() if isinstance(error, kind)), "")
    if not isinstance(error, ModuleNotFoundError):
        return advice
    partly = {name: how for hook in hooks().values() for name, how in hook.PARTLY.items()}
    how = partly.get((error.name or "").partition(".")[0])
    advice += f", without what needs a GPU: {how}" if how else ""
    return advice + _others(error)


def _others(error: ModuleNotFoundError) -> str:
    """The other packages that the program would miss next."""
    provided = {name for hook in hooks().values() for name in hook.PROVIDED}
    known = provided | {(error.name or "").partition(".")[0]}
    missing = {name: line for name, line in unmet(own_files(error)).items() if name not in known}
    named = ", ".join(f"{name} ({line})" for name, line in missing.items())
    return named and f", with the others that it imports and that are not found: {named}"
