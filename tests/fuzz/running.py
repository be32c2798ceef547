"""One damaged input after another through one reader, in a process that may die of it.

The idea: an input is the reader's name and a number; the number makes every random choice, so it
is all that is needed to have the input again. The process that reads has 2 GiB more memory than it
began with, and ten seconds of processor time for each input; what it reads lies in its parent's
folder and outlives it. What a reader may do is come back or raise FlintError.

    counts = run("kineto", range(1000))      # {Outcome("refused", "... not a trace"): 412, ...}
"""

from __future__ import annotations

import hashlib
import mmap
import os
import re
import resource
import signal
import tempfile
import traceback
import zlib
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import msgspec

from tests.fuzz.readers import BY_ENDING, READERS, Reader, copied

#: What one input may take: bytes beyond what the process had, seconds of processor time.
MEMORY = 2 << 30
SECONDS = 10
#: Larger inputs are not damaged further: small ones make many a second (bytes).
_GROWN = 1 << 15
#: Damaged inputs that were read and are damaged further.
_TAKEN = 32
#: Kinds of outcomes that are not defects.
FINE = ("read", "refused")


class Outcome(NamedTuple):
    """What a reader did with an input, and the words that make two outcomes one."""

    kind: str
    signature: str


def inputs(reader: Reader, number: int, grown: Sequence[bytes] = ()) -> tuple[Path, str, bytes]:
    """The input of a number: its seed, which file of the seed is damaged, and how it reads then.

    Args:
        reader: whose inputs.
        number: which one.
        grown: inputs found earlier that a reader of single files said something new about.
    """
    rng = Random(number)
    seed = reader.seeds[min(int(rng.expovariate(1.5)), len(reader.seeds) - 1)]
    file = rng.choice(_damageable(seed)) if seed.is_dir() else seed
    mutation = reader.mutation or BY_ENDING[file.suffix]
    data = rng.choice(grown) if grown and rng.random() < 0.5 else _content(file)
    for _ in range(1 + int(rng.expovariate(1.0))):
        data = mutation(data, rng)
    return seed, str(file.relative_to(seed)), data


@cache
def _damageable(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.suffix in BY_ENDING)


@cache
def _content(path: Path) -> bytes:
    return path.read_bytes()


def outcome_of(reader: Reader, path: Path) -> Outcome:
    """Read once; nothing but the reader's own refusal is expected."""
    from flint.errors import FlintError

    try:
        reader.read(path)
    except FlintError as error:
        return Outcome("refused", _general(str(error), path))
    except MemoryError as error:
        return Outcome("memory", _place(error))
    except Exception as error:
        return Outcome("internal error", f"{type(error).__name__} {_place(error)}")
    return Outcome("read", "")


def run(name: str, numbers: Iterable[int], keep: Path | None = None) -> Counter[Outcome]:
    """The outcomes of inputs, each counted; a process that died is one, too.

    Args:
        name: the reader's.
        numbers: of the inputs.
        keep: folder for the smallest input of each outcome that is a defect. With it, inputs that a
            reader said something new about are kept, too, and damaged further as if they were real.
    """
    counts: Counter[Outcome] = Counter()
    todo = deque(numbers)
    with tempfile.TemporaryDirectory(prefix="flint-fuzz-", dir=_memory_folder()) as folder:
        # What is imported now is imported once, and is no input's cost.
        outcome_of(READERS[name], READERS[name].seeds[0])
        while todo:
            for outcome in _in_child(name, todo, Path(folder), keep):
                counts[outcome] += 1
                todo.popleft()
    return counts


def _in_child(name: str, todo: Iterable[int], folder: Path, keep: Path | None) -> Iterator[Outcome]:
    receive, send = os.pipe()
    current = mmap.mmap(-1, 4096)  # which file the child reads, for when it dies of it
    child = os.fork()
    if child == 0:
        os.close(receive)
        status = 1
        try:
            _work(name, list(todo), folder, current, send, keep)
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    os.close(send)
    with os.fdopen(receive, "rb") as answers:
        for line in answers:
            yield Outcome(*msgspec.json.decode(line))
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        ended = signal.Signals(os.WTERMSIG(status))
        outcome = (
            Outcome("too slow", "") if ended == signal.SIGPROF else Outcome("death", ended.name)
        )
        if READERS[name].own_process:
            outcome = Outcome("refused", f"its process ended: {' '.join(outcome)}")
        elif keep is not None:
            place, file = os.fsdecode(current[:].rstrip(b"\0")).split("\0")
            keep_smallest(keep, _place_of(name, file), outcome, Path(place).read_bytes())
        yield outcome
    elif status:
        raise RuntimeError(f"the harness failed at {name} with exit status {status}")


def _work(
    name: str, todo: list[int], folder: Path, current: mmap.mmap, send: int, keep: Path | None
) -> None:
    reader = READERS[name]
    limit = _address_space() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, resource.getrlimit(resource.RLIMIT_AS)[1]))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if reader.own_process:  # what a library prints before it ends the process
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    grown = Grown(keep and keep / "corpus" / name)
    copies: dict[Path, Path] = {}
    for number in todo:
        seed, file, data = inputs(reader, number, grown.inputs)
        if seed not in copies:
            copies[seed] = copied(seed, folder)
        place = copies[seed] / file
        place.write_bytes(data)
        current[:] = os.fsencode(f"{place}\0{file}").ljust(4096, b"\0")
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        outcome = outcome_of(reader, copies[seed])
        signal.setitimer(signal.ITIMER_PROF, 0)
        if seed.is_dir():
            place.write_bytes(_content(seed / file))
        if keep is not None and outcome.kind not in FINE:
            keep_smallest(keep, _place_of(name, file), outcome, data)
        elif reader.mutation is not None:
            grown.take(outcome, data)
        os.write(send, msgspec.json.encode(outcome) + b"\n")


class Grown:
    """Inputs that a reader said something new about; they outlive the process in a folder.

    Of damaged inputs that a reader takes, whose outcomes are all alike, it has a few dozen.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
        found = sorted(folder.iterdir()) if folder is not None else []
        self._seen = {path.name for path in found}
        self.inputs = [path.read_bytes() for path in found]

    def take(self, outcome: Outcome, data: bytes) -> None:
        """Keep it, unless it is large or something with this outcome is there."""
        words = outcome.signature or str(zlib.crc32(data) % _TAKEN)
        name = hashlib.sha256(words.encode()).hexdigest()[:16]
        if self._folder is None or name in self._seen or len(data) > _GROWN:
            return
        self._seen.add(name)
        self.inputs.append(data)
        (self._folder / name).write_bytes(data)


def _place_of(name: str, file: str) -> str:
    """The folder of a defect: the reader's, with the damaged file's name where it has several."""
    return name if file == "." else f"{name}@{file.replace('/', '+')}"


def keep_smallest(folder: Path, place: str, outcome: Outcome, data: bytes) -> None:
    """Keep an input unless a smaller one with this outcome is there."""
    words = re.sub(r"\W+", "-", " ".join(outcome)).strip("-")[:120]
    path = folder / place / words
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.stat().st_size > len(data):
        path.write_bytes(data)


def _general(message: str, path: Path) -> str:
    """A message without what differs from input to input."""
    message = message.replace(str(path), "").replace(str(path.parent), "")
    message = re.sub(r"'[^']*'|\"[^\"]*\"|\([^)]*\)", "'", message)
    return re.sub(r"-?\d[\d.,e+]*", "0", message)[:120]


def _place(error: BaseException) -> str:
    """The innermost line of Flint's own."""
    frames = [
        f"{Path(frame.filename).name}:{frame.name}"
        for frame in traceback.extract_tb(error.__traceback__)
        if any(f"/{room}/" in frame.filename for room in ("flint", "frontends", "converters"))
        and "/tests/" not in frame.filename and "site-packages" not in frame.filename
    ]  # fmt: skip
    return frames[-1] if frames else "outside"


def _address_space() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * resource.getpagesize()


def _memory_folder() -> Any:
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
