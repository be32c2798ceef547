"""What is fuzzed: each reader of untrusted files, with real inputs and the way to damage them.

READERS["kineto"].read(Path("trace.json"))       # raises FlintError, or comes back
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.fuzz import mutations as mutate

DATA = Path(__file__).parents[1] / "data"
REPOSITORY = DATA.parents[1]


@dataclass(frozen=True, slots=True)
class Reader:
    """One reader.

    Attributes:
        seeds: real inputs: files, or folders of which one file is damaged.
        mutation: how a file is damaged; in folders, by the ending of its name.
        read: reads a path as the commands do.
        own_process: whether Flint runs it in a process that may die of what it reads.
    """

    seeds: tuple[Path, ...]
    mutation: mutate.Mutation | None
    read: Callable[[Path], object]
    own_process: bool = False


#: How the files of a folder are damaged.
BY_ENDING: dict[str, mutate.Mutation] = {
    ".json": mutate.json_values,
    ".npz": mutate.archive,
    ".et": mutate.delimited,
    ".yml": mutate.text,
    ".mlirbc": mutate.any_bytes,
    ".parquet": mutate.any_bytes,
}


def _trace(path: Path) -> None:
    from flint.post_execution.converting import convert_traces

    convert_traces([path])


def _program(path: Path) -> None:
    from flint.capturing.saved_files import convert

    convert(path)


def _program_here(path: Path) -> None:
    from flint.capturing.saved_files import convert

    convert(path, trusted=True)


def _parsed(path: Path) -> None:
    from flint.frontends.saved.parsing import parse

    parse(path.read_bytes(), str(path))


def _unpacked(path: Path) -> None:
    from flint.stablehlo.packed.packing import unpacked

    unpacked(path.read_bytes(), str(path))


def _folder(path: Path) -> None:
    from flint.workload.inspection import summarise
    from flint.workload.loading import load

    summarise(load(path))


def _observed(path: Path) -> None:
    from flint.observed.reading import read_trace

    read_trace(path)


def _checked(path: Path) -> None:
    from flint.converters.chakra.check.checker import check

    check(path)


def _system(path: Path) -> None:
    from flint.cost.systems import load_system

    load_system(path)


def _found(*patterns: str) -> tuple[Path, ...]:
    """Files of the test data, smallest first; small ones make many inputs a second."""
    return tuple(sorted((path for pattern in patterns for path in DATA.glob(pattern)), key=_size))


def _made(pattern: str) -> tuple[Path, ...]:
    """Forms of the test data that only fuzzing needs."""
    return tuple(sorted((Path(__file__).parent / "seeds").glob(pattern), key=_size))


def _size(path: Path) -> int:
    return path.stat().st_size


_FOLDERS = (DATA / "folders" / "ring_attention",)

_SYSTEMS = REPOSITORY / "flint" / "cost"

#: Name -> reader. Seeds are few and small: most inputs of a second teach most.
READERS: dict[str, Reader] = {
    "kineto": Reader(
        _found("profiles/*rank*.json.gz", "profiles/event_sync.json.gz"),
        mutate.gzipped(mutate.json_values),
        _trace,
    ),
    "pytorch-et": Reader(
        _found("traces/et_*.json.gz", "profiles/simple_add_et*.json.gz"),
        mutate.gzipped(mutate.json_values),
        _trace,
    ),
    "chakra": Reader(_found("folders/*/et/*.et"), mutate.delimited, _observed),
    "chakra-check": Reader(_FOLDERS, None, _checked),
    "workload": Reader(_FOLDERS, None, _folder),
    "hlo-proto": Reader(_found("hlo/*/*.hlo.pb"), mutate.protobuf, _program_here),
    "hlo-optimized": Reader(
        _found("optimized/gpu_[cdlr]*.hlo.pb.gz")[:4],
        mutate.gzipped(mutate.protobuf),
        _program_here,
    ),
    "mlir": Reader(_found("stablehlo/*_8x8.mlirbc"), mutate.any_bytes, _program),
    "mlir-parser": Reader(
        _found("stablehlo/*_8x8.mlirbc"), mutate.any_bytes, _parsed, own_process=True
    ),
    "mlir-text-parser": Reader(_made("*.mlir"), mutate.text, _parsed, own_process=True),
    "hlo-text-parser": Reader(_made("*.hlo"), mutate.text, _parsed, own_process=True),
    "records": Reader(_made("*.records"), mutate.any_bytes, _unpacked),
    "system": Reader(tuple(sorted(_SYSTEMS.glob("systems/*.toml"))), mutate.text, _system),
}


def copied(seed: Path, folder: Path) -> Path:
    """A seed where it may be changed."""
    target = folder / seed.name
    if seed.is_dir():
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(seed, target)
    else:
        shutil.copyfile(seed, target)
    return target
