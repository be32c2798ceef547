"""Accelerators: descriptions of single devices, as data files or as tables in a system's file.

The idea: a device is described once and shared by the systems that have it.  Ours are named
(``h100-sxm``); a user's is a TOML file of the same form, which a system names by its path.

    load_accelerator("tpu-v4").systolic.rows         # 128
"""

from __future__ import annotations

import re
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

from flint.cost.description import Description, Stated, Unfit, read_table, read_text
from flint.cost.hardware import (
    CURVED,
    DATAFLOWS,
    Accelerator,
    AttentionShare,
    Curve,
    KernelModel,
    Scratchpads,
    SystolicArray,
    Tile,
)
from flint.errors import UsageError
from flint.graph.tensor_types import DTYPES

#: Element types that a rate can be given for: those of programs, narrow floats of any format, and
#: TF32, as which f32 is computed.
RATED: Final = frozenset((*DTYPES, "f8", "f6", "f4", "tf32"))

_FOLDER: Final = Path(__file__).with_name("accelerators")


def accelerator_names() -> tuple[str, ...]:
    """Names of the accelerators that a system description can use."""
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.toml")))


def accelerator_named(name: str) -> str | None:
    """The full name of an accelerator: "h100" is "h100-sxm"; None if there is none, or several."""
    names = accelerator_names()
    if name in names:
        return name
    found = [item for item in names if item.startswith(f"{name.lower()}-")]
    return found[0] if len(found) == 1 else None


def accelerator_called(name: str) -> str | None:
    """The accelerator with that name in its description; only the names of the others are read."""
    stated = re.compile(rf'^name = "{re.escape(name)}"$', re.MULTILINE)
    return next(
        (
            item
            for item in accelerator_names()
            if stated.search(read_text(_FOLDER / f"{item}.toml"))
        ),
        None,
    )


def accelerator_file(name_or_path: str, folder: Path = Path()) -> Path:
    """The file of an accelerator: ours by name, else a path.

    Args:
        name_or_path: what was given.
        folder: paths are relative to it.

    Raises:
        UsageError: no such accelerator.
    """
    named = accelerator_named(name_or_path)
    if named is not None:
        return _FOLDER / f"{named}.toml"
    path = folder / name_or_path
    if path.suffix == ".toml" and path.is_file():
        return path
    if path.suffix == ".toml":
        raise UsageError(f"accelerator {name_or_path!r}: {path} is not a file")
    known = ", ".join(accelerator_names())
    raise UsageError(
        f"accelerator {name_or_path!r} is unknown (a table, a file that ends in .toml, or one of "
        f"{known})"
    )


def load_accelerator(name_or_path: str | Path) -> Accelerator:
    """An accelerator by name, or from a TOML file.

    Raises:
        UsageError: no such name or file, or a file that does not describe an accelerator.
    """
    path = accelerator_file(str(name_or_path))
    try:
        return accelerator_of(read_table(path), path.parent)
    except Unfit as error:
        raise UsageError(f"{path}: {error}") from None


def accelerator_of(content: Any, folder: Path) -> Accelerator:
    """The accelerator of a system: its table, its name, or its file's path in ``folder``.

    Raises:
        Unfit: an entry is missing.
        UsageError: its file cannot be read.
    """
    if isinstance(content, str):
        try:
            content = read_table(accelerator_file(content, folder))
        except UsageError as error:
            raise Unfit(str(error)) from None
    stated: list[Stated] = []
    table = Description(content, "accelerator", stated)
    accelerator = Accelerator(
        name=table.text("name"),
        memory_bytes=int(table.quantity("memory", "bytes")),
        memory_bandwidth=table.quantity("memory_bandwidth", "bytes/s"),
        launch_overhead=table.quantity("launch_overhead", "seconds", zero=True),
        transcendental=table.quantity("transcendental", "operations/s"),
        matmul=_rates(table.table("matmul")),
        vector=_rates(table.table("vector")),
        kernel=_kernel(table.table("kernel")),
        efficiency=_shares(table.table("efficiency")) if "efficiency" in table.entries() else {},
        curves=tuple(map(_curve, table.tables("curves"))),
        systolic=_systolic(table.table("systolic")) if "systolic" in table.entries() else None,
        host_bandwidth=table.quantity("host_bandwidth", "bytes/s")
        if "host_bandwidth" in table.entries()
        else 0.0,
        stated=tuple(stated),
    )
    table.done()
    return accelerator


def _shares(table: Description) -> dict[str, float]:
    _check_types(table)
    return {key: table.share(key) for key in table.entries()}


def _kernel(table: Description) -> KernelModel:
    attention = table.share("attention_efficiency", 1.0)
    flash = table.share("flash_attention_efficiency", attention)
    beside = table.share("beside_communication", 1.0)
    kernel = KernelModel(
        units=table.count("units"),
        tiles=_tiles(table),
        k_step=table.count("k_step"),
        matmul_efficiency=table.share("matmul_efficiency"),
        memory_efficiency=table.share("memory_efficiency"),
        latency=table.quantity("latency", "seconds", zero=True),
        attention_efficiency=attention,
        flash_attention_efficiency=flash,
        eager_attention_efficiency=table.share("eager_attention_efficiency", flash),
        efficient_attention_efficiency=table.share("efficient_attention_efficiency", flash),
        narrow_attention_efficiency=table.share("narrow_attention_efficiency", attention),
        beside_communication=beside,
        beside_copies=table.share("beside_copies", beside),
        grouped_rows=_or_none(table, "grouped_rows"),
        grouped_columns=_or_none(table, "grouped_columns"),
        grouped_efficiency=table.share("grouped_efficiency", 1.0),
        grouped_unaligned=table.share("grouped_unaligned", 1.0),
        gather_index=table.quantity("gather_index", "seconds")
        if "gather_index" in table.entries()
        else 0.0,
        attention_block=_or_none(table, "attention_block"),
        attention_masked=table.number("attention_masked", 1.0),
        attention_head_step=_or_none(table, "attention_head_step"),
        matmul_alone=table.share("matmul_alone") if "matmul_alone" in table.entries() else 0.0,
        unaligned=table.share("unaligned", 1.0),
        attention_alone=_attention(table) if "attention_alone" in table.entries() else (),
        attention_causal=_or_none(table, "attention_causal"),
    )
    table.done()
    return kernel


def _or_none(table: Description, name: str) -> int:
    """A count that a description may leave out: 0."""
    return table.count(name) if name in table.entries() else 0


def _curve(table: Description) -> Curve:
    curve = Curve(
        kernel=table.choice("class", CURVED),
        dtype=table.text("type"),
        latency=table.quantity("latency", "seconds", zero=True),
        bandwidth=table.quantity("bandwidth", "bytes/s"),
        efficiency=table.number("efficiency", 1.0),
        overlap=table.number("overlap", 1.0),
        layout=_layout(table),
        error=table.number("error", 0.0),
    )
    table.done()
    if curve.dtype not in DTYPES and curve.dtype != "any":
        raise Unfit(f"{table.where}type {curve.dtype!r} is neither an element type nor any")
    if curve.overlap < 1:
        raise Unfit(f"{table.where}overlap must be at least 1")
    return curve


def _layout(table: Description) -> tuple[int, int]:
    if "layout" not in table.entries():
        return (1, 1)
    listed = table.figure("layout")
    if not isinstance(listed, list) or [type(item) for item in listed] != [int, int]:
        raise Unfit(f"{table.where}layout must be [rows, lanes]")
    rows, lanes = listed
    if not (0 < rows < 1 << 20 and 0 < lanes < 1 << 20):
        raise Unfit(f"{table.where}layout must be [rows, lanes] above 0")
    return rows, lanes


def _systolic(table: Description) -> SystolicArray:
    array = SystolicArray(
        rows=table.count("rows"),
        columns=table.count("columns"),
        arrays=table.count("arrays", 1),
        clock=table.quantity("clock", "hertz"),
        dataflow=table.choice("dataflow", DATAFLOWS),
        memory=_scratchpads(table.table("memory")) if "memory" in table.entries() else None,
    )
    table.done()
    return array


def _scratchpads(table: Description) -> Scratchpads:
    memory = Scratchpads(
        ifmap=int(table.quantity("ifmap", "bytes")),
        filter=int(table.quantity("filter", "bytes")),
        ofmap=int(table.quantity("ofmap", "bytes")),
        bandwidth=table.quantity("bandwidth", "bytes/s"),
    )
    table.done()
    return memory


def _tiles(table: Description) -> tuple[Tile, ...]:
    listed = table.figure("tiles")
    if not isinstance(listed, list) or not listed or not all(map(_is_tile, listed)):
        raise Unfit(f"{table.where}tiles must be a list of [m, n, efficiency between 0 and 1]")
    return tuple(Tile(m, n, float(share)) for m, n, share in listed)


def _is_tile(item: Any) -> bool:
    if not isinstance(item, list) or [type(part) for part in item[:2]] != [int, int]:
        return False
    sizes, share = item[:2], item[2:]
    fits = len(share) == 1 and type(share[0]) in (int, float) and 0 < share[0] <= 1
    return fits and all(0 < size < 1 << 20 for size in sizes)


def _attention(table: Description) -> tuple[AttentionShare, ...]:
    listed = table.figure("attention_alone")
    if not isinstance(listed, list) or not listed or not all(map(_is_attention, listed)):
        raise Unfit(
            f"{table.where}attention_alone must be a list of [head size, length, share forward, "
            "share backward], shares between 0 and 1"
        )
    return tuple(AttentionShare(*item) for item in listed)


def _is_attention(item: Any) -> bool:
    if not isinstance(item, list) or [type(part) for part in item] != [int, int, float, float]:
        return False
    return all(0 < size < 1 << 24 for size in item[:2]) and all(
        0 < share <= 1 for share in item[2:]
    )


def _rates(table: Description) -> dict[str, float]:
    _check_types(table)
    stated = {key: table.possible(key, "operations/s") for key in table.entries()}
    rates = {key: rate for key, rate in stated.items() if rate is not None}
    if "f32" not in rates:
        raise Unfit(f"{table.where}f32 is missing (it is used for types that are not listed)")
    return rates


def _check_types(table: Description) -> None:
    for key in table.entries():
        if key not in RATED:
            near = get_close_matches(key, sorted(RATED), n=1)
            meant = f"; did you mean {near[0]}?" if near else ""
            raise Unfit(f"{table.where}{key} is not an element type{meant}")
