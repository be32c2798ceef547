"""What another rank would send, from running as that rank in another process.

The idea: pipeline stages send each other the shapes of their messages before the first step.  The
rank of a capture is alone; so a copy of the process, forked before it is any rank, waits to run
as the neighbour: it runs setup and step until the message is to be sent, and answers with it.
What is known already goes along, so that each stage is asked once.

    with waiting(run_as_rank, {}) as peers:
        peers.ask(rank=0, stage=1)          # what reaches stage 1 from rank 0
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from flint.errors import FlintError
from flint.host.child_processes import fork

#: Stage -> what reaches it: plain data that JSON can hold.
Known = dict[int, Any]

#: Runs as a rank until it sends what reaches a stage: ``run_as_rank(rank, stage, known, tell)``.
RunAsRank = Callable[[int, int, Known, Callable[[Known], None]], None]


@dataclass(slots=True)
class Peers:
    """The waiting copy of this process.

    Attributes:
        known: what has been learned.
    """

    known: Known
    _asking: int
    _answers: Any

    def ask(self, rank: int, stage: int) -> Any:
        """What reaches a stage from a rank.

        Raises:
            FlintError: the rank failed before it came to send it.
        """
        if stage not in self.known:
            question = {"rank": rank, "stage": stage, "known": self.known}
            os.write(self._asking, (json.dumps(question) + "\n").encode())
            line = self._answers.readline()
            answer: dict[str, Any] = {"error": "it ended without an answer"}
            if line:
                answer = json.loads(line)
            if "error" in answer:
                raise FlintError(
                    f"stage {stage} of the pipeline waits for rank {rank}: {answer['error']}"
                )
            self.known.update({int(key): value for key, value in answer["known"].items()})
        return self.known[stage]


@contextmanager
def waiting(run_as_rank: RunAsRank, known: Known) -> Iterator[Peers]:
    """Fork the copy that waits; it ends with the block, or when this process dies."""
    questions, asking = os.pipe()
    answers, telling = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    process = fork()
    if process == 0:
        os.close(asking)
        os.close(answers)
        _serve(run_as_rank, questions, telling)
    os.close(questions)
    os.close(telling)
    reader = os.fdopen(answers, "r", encoding="utf-8")
    try:
        yield Peers(dict(known), asking, reader)
    finally:
        os.close(asking)
        reader.close()
        os.waitpid(process, 0)


def _serve(run_as_rank: RunAsRank, questions: int, telling: int) -> None:
    """In the copy: a child for every question.  Does not return."""
    try:
        with os.fdopen(questions, "r", encoding="utf-8") as lines:
            for line in lines:
                question = json.loads(line)
                process = fork()
                if process == 0:
                    _answer(run_as_rank, question, telling)
                _, status = os.waitpid(process, 0)
                if status:
                    os.write(telling, b'{"error": "its process died"}\n')
    finally:
        os._exit(0)


def _answer(run_as_rank: RunAsRank, question: dict[str, Any], telling: int) -> None:
    """In a child: run as the rank, answer, end."""

    def tell(known: Known) -> None:
        os.write(telling, (json.dumps({"known": known}) + "\n").encode())
        os._exit(0)

    status = 1
    try:
        known = {int(key): value for key, value in question["known"].items()}
        run_as_rank(question["rank"], question["stage"], known, tell)
        text = "it ran its step without sending it"
        os.write(telling, (json.dumps({"error": text}) + "\n").encode())
        status = 0
    except FlintError as error:
        os.write(telling, (json.dumps({"error": str(error)[:2000]}) + "\n").encode())
        status = 0
    finally:
        os._exit(status)
