"""Reading a saved program, in a separate process unless the user vouches for the file.

The idea: the parsers of MLIR and XLA are made for the output of compilers; on another file they may
abort, overflow their stack, or take all memory or time.  In their own process (``child.py``) that
results in a one-line error; the records come back as bytes.

    with begin(read_once(Path("model.mlirbc"), MEMORY_LIMIT)) as records:
        module = records()
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from flint.errors import FlintError
from flint.frontends.saved.kinds import Kind, advice, detect
from flint.host import spare_process
from flint.host.child_errors import raise_left
from flint.host.child_processes import Limits
from flint.host.environment import import_numpy
from flint.host.module_process import ModuleProcess
from flint.host.packed_files import MEMORY_LIMIT, Content
from flint.host.reading_memory import RAISE, says_no_memory, too_large

if TYPE_CHECKING:
    from flint.stablehlo.read.records import Module

#: Seconds of processor time that reading may take: an allowance for the start and 10 s per MB
#: (measured: 1.4 s per MB of bytecode, a tenth of that for text).
START_SECONDS = 8
BYTES_PER_SECOND = 100_000
#: Factor for the wall time, because the machine may be busy with other work.
_BUSY = 30

#: Bytes that the reading process needs for itself.
_LEAST_MEMORY = 64 << 20

_CHILD = "flint.frontends.saved.child"
#: Name of the file with its result.
_MADE = "made"


@contextmanager
def begin(
    content: Content,
    entry: str | None = None,
    *,
    trusted: bool = False,
    memory_limit: int = MEMORY_LIMIT,
) -> Iterator[Callable[[], Module]]:
    """Begin to read a saved program into op records.

    Args:
        content: of the file; its name does not matter.
        entry: function to start from, for MLIR modules; default ``main``, else the only public one.
        trusted: read it in this process, which a file not written by a compiler may then end.
        memory_limit: bytes of memory that reading may take.

    Yields:
        A function that waits for the records and returns them.

    Raises:
        UsageError: an entry for an HLO module, which has exactly one.
        FlintError: it holds no module, is damaged, or reading it went over a limit.
    """
    name = str(content.path)
    kind = detect(content.data)
    if not kind.is_program and kind is not Kind.GZIP:
        raise FlintError(f"{name}: this is {kind.value}; {advice(kind)}")
    if trusted:
        yield lambda: _read_here(content.data, name, entry)
        return
    with _making(content, entry, {}, memory_limit) as made:
        yield lambda: _unpacked(made(), name)


def sized(
    content: Content,
    shapes: Mapping[str, Sequence[int]],
    entry: str | None = None,
    *,
    trusted: bool = False,
    memory_limit: int = MEMORY_LIMIT,
) -> Content:
    """A saved program with sizes for its arguments; the other arguments are those of ``begin``.

    Args:
        shapes: argument, by number from 0 or by name -> its dims, in elements.

    Raises:
        UsageError: HLO, no such argument, or sizes that it does not leave open.
        FlintError: as ``begin``, or a program that requires other sizes.
    """
    if trusted:
        from flint.frontends.saved import parsing

        return replace(content, data=parsing.sized(content.data, shapes, str(content.path), entry))
    with _making(content, entry, shapes, memory_limit) as made:
        return replace(content, data=made())


@contextmanager
def _making(
    content: Content, entry: str | None, shapes: Mapping[str, Sequence[int]], memory_limit: int
) -> Iterator[Callable[[], bytes]]:
    """A process that makes records of a program, or a program with sizes if there are shapes."""
    name = str(content.path)
    import_numpy()
    spare_process.prepare_if_small()
    seconds = START_SECONDS + len(content.data) // BYTES_PER_SECOND
    with ModuleProcess(
        _CHILD, [str(seconds), str(memory_limit)], f"{name}: reading it", "",
        Limits(_BUSY * seconds, memory_limit), advice=" (--memory-limit, in GiB)",
    ) as child:  # fmt: skip
        words = {"name": name, "entry": entry, "shapes": shapes, "advice": f": {RAISE}"}
        child.begin(words, content.data)
        yield lambda: _made(child, name, seconds, memory_limit)


def read(content: Content, entry: str | None = None, **limits: Any) -> Module:
    """Read a saved program into op records; arguments and errors are those of ``begin``."""
    with begin(content, entry, **limits) as records:
        return records()


def _read_here(data: bytes, name: str, entry: str | None) -> Module:
    from flint.frontends.saved.parsing import parse

    return parse(data, name, entry)


def _unpacked(records: bytes, name: str) -> Module:
    from flint.stablehlo.packed.packing import unpacked

    return unpacked(records, name)


def _made(child: ModuleProcess, name: str, seconds: int, memory: int) -> bytes:
    """The result of the reading process, once it has ended."""
    while not child.ended():
        child.check_limits()
    raise_left(child.place)
    made = child.place / _MADE
    if not made.is_file():
        raise FlintError(f"{name}: {_why(child, seconds, memory)}")
    return made.read_bytes()


def _why(child: ModuleProcess, seconds: int, memory: int) -> str:
    """Why a process that has ended left no result."""
    if child.process.poll() == -signal.SIGXCPU:
        return (
            f"reading took more than {seconds} s of processor time and was stopped (with a damaged "
            "file, it may never end)"
        )
    printed = child.log()
    if says_no_memory(printed) or memory < _LEAST_MEMORY:
        return too_large(memory)
    return f"damaged, or nested too deeply: during reading, {child.reason()}"
