"""What is fuzzed: each reader of untrusted files, with real inputs and the way to damage them.

READERS["kineto"].read(Path("trace.json"))       # raises FlintError, or comes back
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import count
from pathlib import Path
from typing import Any
from unittest.mock import patch

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
        starts_process: whether each input has a process that starts.
    """

    seeds: tuple[Path, ...]
    mutation: mutate.Mutation | None
    read: Callable[[Path], object]
    own_process: bool = False
    starts_process: bool = False


#: How the files of a folder are damaged.
BY_ENDING: dict[str, mutate.Mutation] = {
    ".json": mutate.json_values,
    ".npz": mutate.archive,
    ".et": mutate.delimited,
    ".yml": mutate.text,
    ".mlirbc": mutate.any_bytes,
    ".parquet": mutate.any_bytes,
    ".mlir": mutate.text,
    ".csv": mutate.text,
}


def _trace(path: Path) -> None:
    from flint.post_execution.converting import convert_traces

    convert_traces([path])


def _program(path: Path) -> None:
    from flint.capturing.saved_files import convert

    convert(path)


def _program_here(path: Path) -> None:
    from flint.capturing.saved_files import convert

    convert(path, trusted=True, trip_count=2, branch=0)


def _parsed(path: Path) -> None:
    from flint.frontends.saved.parsing import parse
    from flint.stablehlo.read import bindings

    context = _context(bindings.make_context, next(_CONTEXTS) // 100)
    with patch.object(bindings, "make_context", lambda: context):
        parse(path.read_bytes(), str(path))


_CONTEXTS = count()


@lru_cache(1)
def _context(make: Callable[[], Any], number: int) -> Any:
    """A context for MLIR that some inputs share: to make one takes longer than to parse."""
    return make()


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


def _accelerator(path: Path) -> None:
    from flint.cost.accelerators import load_accelerator

    load_accelerator(path)


def _calibration(path: Path) -> None:
    from flint.calibration.kernels import read_kernels

    read_kernels(path)


def _durations(path: Path) -> None:
    from flint import registry
    from flint.cost.measured import read_measured

    read = registry.converter("scale-sim-report") if path.is_dir() else read_measured
    read(path)


def _point(path: Path) -> None:
    """A finished point of a sweep that is continued."""
    from flint.mesh.mesh import parse_mesh
    from flint.sweeps.points import Point
    from flint.sweeps.rows import remarks, to_rows
    from flint.sweeps.running import Outcome, _stored

    result = _stored(path)
    point = Point("a.py:b", parse_mesh("4"), None, "s", "s", (), path, path)
    remarks(to_rows([Outcome(point, result, None)]))


def _found(*patterns: str) -> tuple[Path, ...]:
    """Files of the test data, smallest first; small ones make many inputs a second."""
    return _by_size([path for pattern in patterns for path in DATA.glob(pattern)])


def _made(*patterns: str) -> tuple[Path, ...]:
    """Forms of the test data that only fuzzing needs."""
    return _by_size([path for pattern in patterns for path in SEEDS.glob(pattern)])


def _by_size(paths: Sequence[Path]) -> tuple[Path, ...]:
    return tuple(sorted(paths, key=lambda path: path.stat().st_size))


SEEDS = Path(__file__).parent / "seeds"

#: Without checksums, so that damage reaches the readers; with them; and a larger one.
_FOLDERS = (SEEDS / "folder_earlier", SEEDS / "folder", DATA / "folders" / "ring_attention")

_COST = REPOSITORY / "flint" / "cost"
_KINETO = _found("profiles/*rank*.json.gz", "profiles/event_sync.json.gz")[:3]
_PYTORCH_ET = _found("traces/et_*.json.gz", "profiles/simple_add_et*.json.gz")
_BYTECODE = (*_made("*.mlirbc"), *_found("stablehlo/*_8x8.mlirbc"))
_gzipped_json = mutate.gzipped(mutate.json_values)

#: Name -> reader. Seeds are few and small: most inputs of a second teach most.
READERS: dict[str, Reader] = {
    "kineto": Reader(_KINETO, _gzipped_json, _trace),
    "kineto-ops": Reader(_KINETO[1:], _gzipped_json, _observed),  # the first has no CPU ops
    "pytorch-et": Reader(_PYTORCH_ET, _gzipped_json, _trace),
    "rocprof": Reader(_made("rocprof.json"), mutate.json_values, _trace),
    "rocprof-csv": Reader(_found("profiles/rocprofv3_csv/*.csv"), mutate.text, _trace),
    "xplane": Reader(_made("*.xplane.pb"), mutate.protobuf, _trace),
    "xplane-ops": Reader(_made("*.xplane.pb"), mutate.protobuf, _observed),
    "chakra": Reader(
        (*_made("folder/et/*.et"), *_found("folders/*/et/*.et")), mutate.delimited, _observed
    ),
    "chakra-check": Reader(_FOLDERS, None, _checked),
    "workload": Reader(_FOLDERS, None, _folder),
    "hlo-proto": Reader(_found("hlo/*/*.hlo.pb"), mutate.protobuf, _program_here),
    "hlo-optimized": Reader(
        _found("optimized/gpu_[cdlr]*.hlo.pb.gz")[:4],
        mutate.gzipped(mutate.protobuf),
        _program_here,
    ),
    "mlir": Reader(_BYTECODE, mutate.any_bytes, _program, starts_process=True),
    "mlir-parser": Reader(_BYTECODE, mutate.any_bytes, _parsed, own_process=True),
    "mlir-text-parser": Reader(_made("*.mlir"), mutate.text, _parsed, own_process=True),
    "hlo-text-parser": Reader(_made("*.hlo"), mutate.text, _parsed, own_process=True),
    "records": Reader(_made("*.records"), mutate.any_bytes, _unpacked),
    "system": Reader(_by_size([*_COST.glob("systems/*.toml")]), mutate.text, _system),
    "accelerator": Reader(
        _by_size([*_COST.glob("accelerators/*.toml")]), mutate.text, _accelerator
    ),
    "calibration": Reader(_made("calibrate.csv"), mutate.text, _calibration),
    "durations": Reader(_made("durations*.csv"), mutate.text, _durations),
    "scale-sim": Reader(_made("scale"), None, _durations),
    "sweep-point": Reader(_made("point.json"), mutate.json_values, _point),
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
