"""What another rank would send, from running as that rank in another process.

The idea: pipeline stages send each other the shapes of their messages before the first step, and
programs broadcast numbers on which shapes depend.  The rank of a capture is alone; so a copy of the
process, forked before it is any rank, waits to run as the other one: it runs until the message is
to be sent, answers with it, and may wait to be asked for a later one.  What is known already goes
along, so that each message is asked for once.

    with waiting(run_as_rank, rank=4) as peers:
        peers.ask(sender=0, stage=1)        # what reaches stage 1 from rank 0
"""

from __future__ import annotations

import functools
import json
import os
import signal
import sys
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flint.errors import FlintError
from flint.host.child_processes import end_with_parent, fork
from flint.host.temporary import temporary_folder

#: "sender>stage" -> what reaches the stage; names of broadcasts -> what they send: plain data that
#: JSON can hold.
Known = dict[str, Any]
_KNOWN = "stages.json"


@dataclass(slots=True)
class Peers:
    """A rank's neighbours.

    Attributes:
        rank: that this process is.
        known: what has been learned.
        place: of a rank that was asked: a folder of its own.
    """

    rank: int
    known: Known = field(default_factory=dict)
    place: Path | None = None
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
        """Whether this process runs only to know what its rank sends."""
        return bool(self._wanted)

    def ask(self, sender: int, stage: int) -> Any:
        """What reaches a stage from a rank.

        Raises:
            FlintError: the rank failed before it came to send it.
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
        """This rank sends to a stage what looks so.  Does not return if that was asked for."""
        self._told(_key(self.rank, stage), looks)

    def broadcast(self, ranks: Sequence[int], root: int, held: list[Any] | None) -> Any:
        """What the next broadcast in a group sends; None where that is not known.

        Args:
            ranks: of the group.
            root: the rank that sends: where it has not run, it is asked.
            held: what this rank holds, if that is known.
        """
        group = f"{zlib.crc32(repr(list(map(int, ranks))).encode())} of {len(ranks)}"
        self._broadcasts[group] += 1
        key = f"broadcast {self._broadcasts[group]} of {int(root)} in {group}"
        if root == self.rank:
            self._told(key, held)
        elif root not in (*self._askers, *self._silent):  # of whom the first wait for this rank
            try:
                self._learn_from(root, key, again=True)
            except FlintError:
                self._silent.append(root)
        return self.known.get(key)

    def _learn_from(self, rank: int, key: str, *, again: bool) -> None:
        """Know what a rank sends, which may be asked again or takes no more memory.

        Raises:
            FlintError: it failed, or ended, before it came to send it.
        """
        if key in self.known:
            return
        question = {
            "rank": int(rank), "wanted": key, "known": self.known,
            "askers": [*self._askers, self.rank], "again": again,
        }  # fmt: skip
        if self._asking < 0:
            raise FlintError("nobody can be asked")
        os.write(self._asking, _line(question))
        answer = json.loads(self._answers.readline() or '{"error": "it ended without an answer"}')
        if "error" in answer:
            raise FlintError(answer["error"])
        self.known.update(answer["known"])

    def _told(self, key: str, what: Any) -> None:
        """This rank sends that; if it was asked for, answer, and go on when asked for more."""
        self.known[key] = what
        if key != self._wanted:
            return
        os.write(self._telling, _line({"known": self.known}))
        line = self._questions.readline()  # or it is killed
        question = json.loads(line)
        self._wanted = question["wanted"]
        self.known.update(question["known"])

    def teach(self, folder: Path) -> None:
        """Leave what is known in a rank's folder."""
        if self.known:
            (folder / _KNOWN).write_text(json.dumps(self.known), encoding="utf-8")

    def learn(self, place: Path) -> None:
        """Know what ranks have left in their folders within a place."""
        for file in place.rglob(_KNOWN):
            self.known.update(json.loads(file.read_text(encoding="utf-8")))


#: Runs as the rank that ``peers`` is.
RunAsRank = Callable[[Peers], None]


def _key(sender: int, stage: int) -> str:
    return f"{int(sender)}>{int(stage)}"


def _line(item: dict[str, Any]) -> bytes:
    return (json.dumps(item) + "\n").encode()


@contextmanager
def waiting(run_as_rank: RunAsRank, rank: int) -> Iterator[Peers]:
    """Fork the copy that waits; it ends with the block, or when this process dies."""
    with _waiting(run_as_rank, Peers(rank)) as peers:
        yield peers


@contextmanager
def _waiting(run_as_rank: RunAsRank, peers: Peers) -> Iterator[Peers]:
    copy = _forked(lambda questions, telling: _serve(run_as_rank, questions, telling))
    peers._asking, peers._answers = copy.asking, copy.answers
    try:
        yield peers
    finally:
        os.close(copy.asking)
        copy.answers.close()
        os.waitpid(copy.process, 0)


@dataclass(frozen=True, slots=True)
class _Child:
    """A copy of this process: its number, where it is asked and where it answers."""

    process: int
    asking: int
    answers: Any

    def kill(self) -> None:
        os.close(self.asking)
        self.answers.close()
        os.kill(self.process, signal.SIGKILL)
        os.waitpid(self.process, 0)


def _forked(run: Callable[[Any, int], None]) -> _Child:
    """A copy that runs with the lines of its questions and where it answers, then ends."""
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
        try:
            run(os.fdopen(questions, "r", encoding="utf-8"), telling)
        finally:
            os._exit(0)
    os.close(questions)
    os.close(telling)
    return _Child(process, asking, os.fdopen(answers, "r", encoding="utf-8"))


def _serve(run_as_rank: RunAsRank, questions: Any, telling: int) -> None:
    """In the copy: a child for every rank that is asked, as long as it can be asked more."""
    asked: dict[int, _Child] = {}
    with ExitStack() as places:
        for line in questions:
            rank = json.loads(line)["rank"]
            if rank not in asked:
                place = places.enter_context(temporary_folder())
                asked[rank] = _forked(functools.partial(_answer, run_as_rank, place))
            os.write(asked[rank].asking, line.encode())
            answer = asked[rank].answers.readline() or '{"error": "its process died"}\n'
            if "error" in json.loads(answer) or not json.loads(line)["again"]:
                asked.pop(rank).kill()
            os.write(telling, answer.encode())
        for child in asked.values():
            child.kill()


def _answer(run_as_rank: RunAsRank, place: Path, questions: Any, telling: int) -> None:
    """In a child: run as the rank, and answer on the way."""
    first = json.loads(questions.readline())
    asked = Peers(
        first["rank"], first["known"], place, first["wanted"], tuple(first["askers"]), telling,
        questions,
    )  # fmt: skip
    try:
        with _waiting(run_as_rank, asked):
            run_as_rank(asked)
        error = "it ran its step without sending it"
    except FlintError as raised:
        error = str(raised)[:2000]
    os.write(telling, _line({"error": error}))
