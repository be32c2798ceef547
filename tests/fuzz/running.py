"""One damaged input after another through one reader, in a process that may die of it.

The idea: an input is the reader's name and a number; the number makes every random choice, so it
is all that is needed to have the input again. The process that reads has 2 GiB more memory than it
began with, and ten seconds of processor time for each input; what it reads lies in its parent's
folder and outlives it. What a reader may do is come back or raise FlintError.

    counts = run("kineto", range(1000))      # {Outcome("refused", "... not a trace"): 412, ...}
"""

from __future__ import annotations

import mmap
import os
import re
import resource
import signal
import tempfile
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import msgspec

from tests.fuzz.readers import BY_ENDING, READERS, Reader, copied

#: What one input may take: bytes beyond what the process had, seconds of processor time.
MEMORY = 2 << 30
SECONDS = 10
#: Larger inputs are not damaged further: small ones make many a second (bytes).
_GROWN = 1 << 18
#: Kinds of outcomes that are no defect.
FINE = ("read", "refused")


class Outcome(NamedTuple):
    """What a reader did with an input, and the words that make two outcomes one."""

    kind: str
    signature: str


def inputs(reader: Reader, number: int, grown: tuple[bytes, ...] = ()) -> tuple[Path, str, bytes]:
    """The input of a number: its seed, which file of the seed is damaged, and how it reads then.

    Args:
        reader: whose inputs.
        number: which one.
        grown: inputs found earlier that a reader of single files said something new about.
    """
    rng = Random(number)
    seed = reader.seeds[min(int(rng.expovariate(1.5)), len(reader.seeds) - 1)]
    file = (
        rng.choice(sorted(p for p in seed.rglob("*") if p.suffix in BY_ENDING))
        if seed.is_dir()
        else seed
    )
    mutation = reader.mutation or BY_ENDING[file.suffix]
    data = rng.choice(grown) if grown and rng.random() < 0.5 else file.read_bytes()
    for _ in range(1 + int(rng.expovariate(1.0))):
        data = mutation(data, rng)
    return seed, str(file.relative_to(seed)), data


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
            reader said something new about are damaged further, as if they were real ones.
    """
    counts: Counter[Outcome] = Counter()
    todo = list(numbers)
    while todo:
        with tempfile.TemporaryDirectory(prefix="flint-fuzz-", dir=_memory_folder()) as folder:
            for outcome in _in_child(name, todo, Path(folder), keep):
                counts[outcome] += 1
                todo.pop(0)
    return counts


def _in_child(name: str, todo: list[int], folder: Path, keep: Path | None) -> Iterator[Outcome]:
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
        place = Path(os.fsdecode(current[:].rstrip(b"\0")))
        if READERS[name].own_process:
            outcome = Outcome("refused", f"its process ended: {' '.join(outcome)}")
        elif keep is not None:
            keep_smallest(keep, name, outcome, place.read_bytes())
        yield outcome
    elif status:
        raise RuntimeError(f"the harness failed at {name}, input {todo[0]}")


def _work(
    name: str, todo: list[int], folder: Path, current: mmap.mmap, send: int, keep: Path | None
) -> None:
    reader = READERS[name]
    outcome_of(reader, copied(reader.seeds[0], folder))  # imports are no input's cost
    limit = _address_space() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, resource.getrlimit(resource.RLIMIT_AS)[1]))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if reader.own_process:  # what a library prints before it ends the process
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    seen: set[Outcome] = set()
    grown: tuple[bytes, ...] = ()
    for number in todo:
        seed, file, data = inputs(reader, number, grown)
        target = copied(seed, folder)
        place = target / file if seed.is_dir() else target
        place.write_bytes(data)
        current[:] = os.fsencode(place).ljust(4096, b"\0")
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        outcome = outcome_of(reader, target)
        signal.setitimer(signal.ITIMER_PROF, 0)
        if keep is not None and outcome not in seen:
            seen.add(outcome)
            if outcome.kind not in FINE:
                keep_smallest(keep, name, outcome, data)
            elif reader.mutation is not None and len(data) < _GROWN:
                grown += (data,)
        os.write(send, msgspec.json.encode(outcome) + b"\n")


def keep_smallest(folder: Path, name: str, outcome: Outcome, data: bytes) -> None:
    """Keep an input unless a smaller one with this outcome is there."""
    folder.mkdir(parents=True, exist_ok=True)
    words = re.sub(r"\W+", "-", f"{name} {outcome.kind} {outcome.signature}").strip("-")[:120]
    path = folder / words
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
