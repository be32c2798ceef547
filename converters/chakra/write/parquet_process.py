"""A process that makes a Parquet file while this one does something else.

The idea: importing pyarrow takes longer than writing the traces of a small program.  A command that
will write some forks early; the copy imports pyarrow in parallel, gets the columns through a pipe
and returns the file when the traces are made.  Without a copy (not prepared, or forking is not
safe) the file is made here.

    prepare()                   # early
    file = parquet_file()       # the process that was prepared, else a ParquetFile
    file.add(columns)
    file.content()
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import IO, TYPE_CHECKING, Protocol

import numpy as np

from flint.errors import FlintError
from flint.host.child_processes import fork

if TYPE_CHECKING:
    from flint.converters.chakra.write.parquet import Column

#: The first byte of an answer: a file, or an error.
_FILE, _FAILURE = b"F", b"E"
#: The threads of this process, if the system lists them.
_THREADS = "/proc/self/task"


class Collecting(Protocol):
    """The interface of ``ParquetFile``."""

    def add(self, columns: Mapping[str, Column]) -> None:
        """Append a row group."""

    def content(self) -> bytes | memoryview:
        """The finished file."""


class ParquetProcess:
    """A ``ParquetFile`` in a separate process.

    Attributes:
        pid: its number.
    """

    def __init__(self) -> None:
        """Fork.

        Raises:
            OSError: no process can be started.
        """
        entry, columns = os.pipe()
        answer, result = os.pipe()
        try:
            self.pid = fork()
        except OSError:
            for descriptor in (entry, columns, answer, result):
                os.close(descriptor)
            raise
        if not self.pid:
            status = 1
            try:
                os.close(columns)
                os.close(answer)
                _serve(entry, result)
                status = 0
            finally:
                os._exit(status)
        os.close(entry)
        os.close(result)
        self._columns: IO[bytes] = open(columns, "wb")  # noqa: SIM115
        self._answer: IO[bytes] = open(answer, "rb")  # noqa: SIM115

    def add(self, columns: Mapping[str, Column]) -> None:
        """Append a row group (see ``ParquetFile``)."""
        with suppress(BrokenPipeError):  # ``content`` reports that it has ended
            _send(columns, self._columns)

    def content(self) -> bytes:
        """The finished file.

        Raises:
            FlintError: the process has ended without it.
        """
        with suppress(BrokenPipeError):
            self._columns.close()
        with self._answer as answer:
            found = answer.read()
        _, status = os.waitpid(self.pid, 0)
        why = "killed; out of memory?"
        if not status:  # else what has come may be a part
            if found[:1] == _FILE:
                return found[1:]
            why = found[1:].decode(errors="replace")
        raise FlintError(f"nodes.parquet: the process that writes it has ended ({why})")


_ready: ParquetProcess | None = None


def prepare() -> None:
    """Fork a process for the next file, if that is useful (no pyarrow here yet) and safe."""
    global _ready
    if _ready is None and "pyarrow" not in sys.modules and _is_alone():
        with suppress(OSError):
            _ready = ParquetProcess()


def _is_alone() -> bool:
    """Whether this process is known to have one thread, so that it forks well."""
    try:
        return len(os.listdir(_THREADS)) == 1
    except OSError:  # not Linux
        return False


def parquet_file() -> Collecting:
    """The process that was prepared, else a file in this one."""
    global _ready
    found, _ready = _ready, None
    if found is not None:
        return found
    from flint.converters.chakra.write.parquet import ParquetFile

    return ParquetFile()


def _send(columns: Mapping[str, Column], pipe: IO[bytes]) -> None:
    """A line that announces the content, followed by the numbers."""
    heads = [
        (name, values.dtype.str, values.nbytes, texts) for name, (values, texts) in columns.items()
    ]
    pipe.write(json.dumps(heads).encode() + b"\n")
    for values, _ in columns.values():
        pipe.write(np.ascontiguousarray(values).data)
    pipe.flush()


def _received(pipe: IO[bytes]) -> Iterator[dict[str, Column]]:
    """What ``_send`` has sent, to the end."""
    while line := pipe.readline():
        columns: dict[str, Column] = {}
        for name, kind, size, texts in json.loads(line):
            columns[name] = np.frombuffer(pipe.read(size), kind), texts
        yield columns


def _serve(entry: int, result: int) -> None:
    """Make the file from the incoming columns; failures are reported instead."""
    os.setpgid(0, 0)  # Ctrl-C at a terminal is for the other one; this one ends with it
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):  # nothing waits for this process to close them
        os.dup2(nowhere, stream)
    with suppress(BrokenPipeError), open(entry, "rb") as columns, open(result, "wb") as answer:
        try:
            from flint.converters.chakra.write.parquet import ParquetFile, warm_up

            warm_up()
            file = ParquetFile()
            for group in _received(columns):
                file.add(group)
            kind, content = _FILE, file.content()
        except Exception as error:
            kind, content = _FAILURE, memoryview(f"{type(error).__name__}: {error}".encode())
        answer.write(kind)
        answer.write(content)
