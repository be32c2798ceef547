"""The messages of another rank, from running as that rank in another process.

The idea: pipeline stages send each other the shapes of their messages before the first step, and
programs broadcast numbers on which shapes depend.  The rank of a capture has no peers; so a copy of
the process, forked before it becomes a rank, waits to run as another rank: it runs until the
message would be sent, returns it, and may wait for a request for a later one.  Known messages are
passed along, so that each message is requested once.

    with waiting(rank=4) as peers:          # in copies, rank 0 and peers.is_asked
        peers.ask(sender=0, stage=1)        # what reaches stage 1 from rank 0
"""

from __future__ import annotations

import json
import os
import signal
import sys
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flint.errors import FlintError
from flint.host.child_processes import end_with_parent, fork

#: "sender>stage" -> the message to the stage; names of broadcasts -> their content: plain data that
#: JSON can hold.
Known = dict[str, Any]
_KNOWN = "stages.json"


@dataclass(slots=True)
class Peers:
    """A rank's neighbours.

    Attributes:
        rank: the rank of this process.
        known: the known messages.
    """

    rank: int
    known: Known = field(default_factory=dict)
    _wanted: str = ""
    _askers: tuple[int, ...] = ()
    _telling: int = -1
    _questions: Any = None
    _asking: int = -1
    _answers: Any = None
    _broadcasts: Counter[str] = field(default_factory=Counter)
    _silent: list[int] = field(default_factory=list)

    @property
    def is_asked(self) -> bool:
        """Whether this process runs only to find what its rank sends."""
        return bool(self._wanted)

    def ask(self, sender: int, stage: int) -> Any:
        """The message from a rank to a stage.

        Raises:
            FlintError: the rank failed before sending it.
        """
        key = _key(sender, stage)
        try:
            self._learn_from(sender, key, again=False)
        except FlintError as error:
            raise FlintError(
                f"stage {stage} of the pipeline waits for rank {sender}: {error}"
            ) from None
        return self.known[key]

    def sent(self, stage: int, looks: Any) -> None:
        """Note the form of this rank's message to a stage.  Does not return if it was requested."""
        self._note(_key(self.rank, stage), looks)

    def broadcast(self, ranks: Sequence[int], root: int, held: Any) -> Any:
        """The content of the next broadcast in a group; None if it is not known.

        Args:
            ranks: of the group.
            root: the rank that sends; if it has not run, it is started.
            held: the value on this rank, if known.
        """
        group = f"{zlib.crc32(repr(list(map(int, ranks))).encode())} of {len(ranks)}"
        self._broadcasts[group] += 1
        key = f"broadcast {self._broadcasts[group]} of {int(root)} in {group}"
        if root == self.rank:
            self._note(key, held)
        elif root not in (*self._askers, *self._silent):  # the first of which wait for this rank
            try:
                self._learn_from(root, key, again=True)
            except FlintError:
                self._silent.append(root)
        return self.known.get(key)

    def _learn_from(self, rank: int, key: str, *, again: bool) -> None:
        """Find what a rank sends; its process is kept for further requests or takes no more memory.

        Raises:
            FlintError: it failed, or ended, before sending it.
        """
        if key in self.known:
            return
        question = {
            "rank": int(rank), "wanted": key, "known": self.known,
            "askers": [*self._askers, self.rank], "again": again,
        }  # fmt: skip
        if self._asking < 0:
            raise FlintError("no process answers questions about other ranks")
        os.write(self._asking, _line(question))
        answer = json.loads(self._answers.readline() or '{"error": "it ended without an answer"}')
        if "error" in answer:
            raise FlintError(answer["error"])
        self.known.update(answer["known"])

    def _note(self, key: str, what: Any) -> None:
        """Note a message of this rank; if requested, answer, and continue on a further request."""
        self.known[key] = what
        if key != self._wanted:
            return
        os.write(self._telling, _line({"known": self.known}))
        line = self._questions.readline()  # or it is killed
        question = json.loads(line)
        self._wanted = question["wanted"]
        self.known.update(question["known"])

    def fail(self, error: BaseException) -> None:
        """Report to the requesting process that this rank does not know it."""
        os.write(self._telling, _line({"error": str(error)[:2000]}))

    def teach(self, folder: Path) -> None:
        """Write the known messages into a rank's folder."""
        if self.known:
            (folder / _KNOWN).write_text(json.dumps(self.known), encoding="utf-8")

    def learn(self, place: Path) -> None:
        """Read the messages that ranks have written into their folders within a place."""
        for file in place.rglob(_KNOWN):
            self.known.update(json.loads(file.read_text(encoding="utf-8")))


def _key(sender: int, stage: int) -> str:
    return f"{int(sender)}>{int(stage)}"


def _line(item: dict[str, Any]) -> bytes:
    return (json.dumps(item) + "\n").encode()


@contextmanager
def waiting(rank: int) -> Iterator[Peers]:
    """Fork the copy that waits.

    The block runs in this process, after which the copy ends, and in a process for each rank that
    is requested, which ends with it.
    """
    peers, copy = Peers(rank), _forked()
    while isinstance(copy, _Questions):
        peers = _serve(copy)
        copy = _forked()
    peers._asking, peers._answers = copy.asking, copy.answers
    try:
        yield peers
    except Exception as error:
        if peers.is_asked:
            peers.fail(error)
        raise
    finally:
        if peers.is_asked:
            os._exit(0)
        os.close(copy.asking)
        copy.answers.close()
        os.waitpid(copy.process, 0)


@dataclass(frozen=True, slots=True)
class _Child:
    """A copy of this process: its number, its channel for requests and its channel for answers."""

    process: int
    asking: int
    answers: Any

    def kill(self) -> None:
        os.close(self.asking)
        self.answers.close()
        os.kill(self.process, signal.SIGKILL)
        os.waitpid(self.process, 0)


@dataclass(frozen=True, slots=True)
class _Questions:
    """In a copy: the requests, one per line, and the channel for answers."""

    lines: Any
    telling: int


def _forked() -> _Child | _Questions:
    """A copy of this process; in the copy, its requests."""
    questions, asking = os.pipe()
    answers, telling = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    parent = os.getpid()
    process = fork()
    if process == 0:
        end_with_parent(parent)
        os.close(asking)
        os.close(answers)
        return _Questions(os.fdopen(questions, "r", encoding="utf-8"), telling)
    os.close(questions)
    os.close(telling)
    return _Child(process, asking, os.fdopen(answers, "r", encoding="utf-8"))


def _serve(copy: _Questions) -> Peers:
    """In the copy: a child for every requested rank, as long as further requests are possible.

    Returns:
        In each child: its rank's requests.
    """
    asked: dict[int, _Child] = {}
    try:
        for line in copy.lines:
            rank = json.loads(line)["rank"]
            if rank not in asked:
                child = _forked()
                if isinstance(child, _Questions):
                    return _asked(child)
                asked[rank] = child
            os.write(asked[rank].asking, line.encode())
            answer = asked[rank].answers.readline() or '{"error": "its process died"}\n'
            if "error" in json.loads(answer) or not json.loads(line)["again"]:
                asked.pop(rank).kill()
            os.write(copy.telling, answer.encode())
        for child in asked.values():
            child.kill()
    except BaseException:
        os._exit(1)
    os._exit(0)


def _asked(child: _Questions) -> Peers:
    """In a child that runs only to find what its rank sends."""
    first = json.loads(child.lines.readline())
    return Peers(
        first["rank"], first["known"], first["wanted"], tuple(first["askers"]), child.telling,
        child.lines,
    )  # fmt: skip
