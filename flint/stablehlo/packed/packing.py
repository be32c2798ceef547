"""Modules as bytes, so that the process that reads a file need not be the one that uses it.

The idea: ops become columns of numbers, and what many of them share (names, attributes, places in
the source) stands in tables once; blocks come after those inside their ops.  Nothing in the bytes
is code, and whoever unpacks them trusts none: each number is checked before it is used.

    unpacked(packed(module))        # an equal Module; its locations are resolved
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from itertools import chain, islice, pairwise, repeat
from typing import Any, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from flint.errors import FlintError
from flint.graph.tensor_types import TensorType
from flint.host.collection import uncollected
from flint.stablehlo.packed.forms import PackedArray, ValueReader, ValueWriter
from flint.stablehlo.read.records import Block, Issue, Module, Op, SourceInfo

#: Columns: numbers of four bytes each.
_WIDTH = "<i4"
Numbers: TypeAlias = NDArray[np.int32]
Column: TypeAlias = bytes
_Source: TypeAlias = tuple[str, str, int, str, str]

#: Fields of a module that are written as they are.
_PLAIN = (
    "name", "num_partitions", "num_replicas", "meshes", "donated", "donors", "input_shardings",
    "output_shardings", "input_names", "input_roles", "partitioned", "warnings", "scheduled",
    "optimized",
)  # fmt: skip


class PackedModule(msgspec.Struct, frozen=True):
    """A module in columns and tables; numbers of a table's rows, -1 for none.

    Attributes:
        functions: name -> its block.
        types: (shape, dtype, bytes, dynamic).
        value_type: per value.
        names, attributes, sources: tables of the ops' names, attributes and places.
        ops: names, attributes, places, then numbers of operands, results and regions per op.
        values: operands and results of each op, one op after the other.
        regions: blocks of each op, one op after the other; each comes before the op's own block.
        blocks: numbers of arguments, ops and yields per block.
        ends: arguments and yields of each block, one block after the other.
        issues: first result, number, stream and what it waits for.
    """

    name: str
    functions: dict[str, int]
    types: list[tuple[tuple[int, ...], str, int, bool]]
    value_type: Column
    names: list[str]
    attributes: list[bytes]
    arrays: list[PackedArray]
    groups: list[bytes]
    sources: list[_Source]
    ops: tuple[Column, Column, Column, Column, Column, Column]
    values: Column
    regions: Column
    blocks: tuple[Column, Column, Column]
    ends: Column
    issues: list[tuple[int, int, int, tuple[int, ...]]]
    num_partitions: int
    num_replicas: int
    meshes: dict[str, tuple[tuple[str, int], ...]]
    donated: dict[int, int]
    donors: frozenset[int]
    input_shardings: tuple[str, ...]
    output_shardings: tuple[str, ...]
    input_names: tuple[str, ...]
    input_roles: tuple[str, ...]
    partitioned: bool
    warnings: dict[str, int]
    scheduled: bool
    optimized: bool


class _Numbers(dict[Any, int]):
    """Numbers of things in the order in which they first appear; what is given as None has -1."""

    def __init__(self) -> None:
        super().__init__({None: -1})

    def __missing__(self, key: Hashable) -> int:
        number = self[key] = len(self) - 1
        return number

    def rows(self) -> list[Any]:
        """What has a number, in the order of the numbers."""
        return list(self)[1:]


class _Packing:
    """The columns of a module while it is packed."""

    def __init__(self) -> None:
        self.names, self.attributes, self.places = _Numbers(), _Numbers(), _Numbers()
        self.writer = ValueWriter()
        self.known: dict[int, int] = {}
        self.known_attributes: dict[int, int] = {}
        self.ops: tuple[list[int], ...] = ([], [], [], [], [], [])
        self.values: list[int] = []
        self.regions: list[int] = []
        self.blocks: tuple[list[int], ...] = ([], [], [])
        self.ends: list[int] = []

    def _attributes_of(self, op: Op) -> int:
        """The number of an op's attributes, which many ops share."""
        number = self.known_attributes.get(id(op.attrs))
        if number is None:
            number = self.attributes[self.writer.text(op.attrs or {})]
            self.known_attributes[id(op.attrs)] = number
        return number

    def block(self, block: Block) -> int:
        """The number of a block, which is packed when it is first met."""
        number = self.known.get(id(block))
        if number is not None:
            return number
        ops = block.ops
        inside = [[self.block(region) for region in op.regions] for op in ops if op.regions]
        names, attributes, places, operands, results, regions = self.ops
        names += [self.names[op.name] for op in ops]
        attributes += [-1 if op.attrs is None else self._attributes_of(op) for op in ops]
        places += [self.places[op.loc] for op in ops]
        operands += [len(op.operands) for op in ops]
        results += [len(op.results) for op in ops]
        regions += [len(op.regions) for op in ops]
        self.values += chain.from_iterable(
            [values for op in ops for values in (op.operands, op.results)]
        )
        self.regions += chain.from_iterable(inside)
        for column, content in zip(self.blocks, (block.args, ops, block.yields), strict=True):
            column.append(len(content))
        self.ends += (*block.args, *block.yields)
        number = self.known[id(block)] = len(self.blocks[0]) - 1
        return number


@uncollected
def packed(module: Module) -> bytes:
    """A module as bytes; where its ops come from is looked up now."""
    packing = _Packing()
    functions = {name: packing.block(block) for name, block in module.functions.items()}
    sources = [_source(module.location, place) for place in packing.places.rows()]
    plain: dict[str, Any] = {name: getattr(module, name) for name in _PLAIN}
    return msgspec.msgpack.encode(
        PackedModule(
            functions=functions,
            types=[(item.shape, item.dtype, item.bytes, item.dynamic) for item in module.types],
            value_type=_column(module.value_type),
            names=packing.names.rows(),
            attributes=packing.attributes.rows(),
            arrays=packing.writer.arrays,
            groups=packing.writer.groups,
            sources=sources,
            ops=tuple(map(_column, packing.ops)),  # type: ignore[arg-type]  # six of them
            values=_column(packing.values),
            regions=_column(packing.regions),
            blocks=tuple(map(_column, packing.blocks)),  # type: ignore[arg-type]  # three of them
            ends=_column(packing.ends),
            issues=[
                (value, issue.number, issue.stream, issue.after)
                for value, issue in module.issues.items()
            ],
            **plain,
        )
    )


def _column(numbers: list[int]) -> Column:
    return np.array(numbers, _WIDTH).tobytes()


def _source(location: Callable[[Hashable], SourceInfo] | None, place: Hashable) -> _Source:
    info = SourceInfo() if location is None else location(place)
    return info.name, info.file, info.line, info.layer, info.phase


@uncollected
def unpacked(data: bytes, name: str = "<module>") -> Module:
    """The module of ``packed``.

    Args:
        data: what that gave.
        name: of the file, for the error.

    Raises:
        FlintError: not what ``packed`` makes.
    """
    try:
        found = msgspec.msgpack.decode(data, type=PackedModule)
        blocks = _blocks(found)
        value_type = _numbers(found.value_type, len(found.types))
        sources = [SourceInfo(*row) for row in found.sources]
        return Module(
            functions={name: blocks[number] for name, number in found.functions.items()},
            value_type=value_type,
            types=[TensorType(*row) for row in found.types],
            issues={row[0]: Issue(*row[1:]) for row in found.issues},
            location=sources.__getitem__,
            **{name: getattr(found, name) for name in _PLAIN},
        )
    except (msgspec.MsgspecError, ValueError, TypeError, LookupError) as error:
        raise FlintError(f"{name}: its reader's records contradict each other ({error})") from error


def _blocks(found: PackedModule) -> list[Block]:
    """All blocks of a packed module.

    Raises:
        ValueError: columns that contradict each other.
    """
    values, reader = _array(found.value_type).size, ValueReader(found.arrays, found.groups)
    names, attributes, places, operands, results, regions = found.ops
    arguments, sizes, yields = found.blocks
    whole = _runs(_numbers(found.values, values), operands, results)
    ends = _runs(_numbers(found.ends, values), arguments, yields)
    ops = [
        Op(*row)
        for row in zip(
            _entries(names, found.names),
            *whole,
            _entries(attributes, [*map(reader.value, found.attributes), None], -1),
            repeat(()),
            _entries(places, [*range(len(found.sources)), None], -1),
            strict=False,
        )
    ]
    bounds = [0, *np.cumsum(_array(sizes, 0)).tolist()]
    if not len(ops) == bounds[-1] == _array(regions, 0).size:
        raise ValueError(f"blocks of {bounds[-1]} ops for {len(ops)}")
    blocks = [
        Block(start, ops[first:end], stop)
        for start, stop, (first, end) in zip(*ends, pairwise(bounds), strict=True)
    ]
    _put_regions(ops, blocks, bounds, _array(regions), _array(found.regions, 0))
    return blocks


def _put_regions(
    ops: list[Op], blocks: list[Block], bounds: list[int], counts: Numbers, inside: Numbers
) -> None:
    """Give ops their regions: blocks that come before their own, so that none is in itself."""
    if counts.sum(dtype=np.int64) != inside.size:  # before there is room made for so many
        raise ValueError(f"{inside.size} regions for other numbers of them")
    around = np.repeat(np.repeat(np.arange(len(blocks)), np.diff(bounds)), counts)
    if (inside >= around).any():
        raise ValueError("regions that are not before the op's own block")
    rest = iter(inside.tolist())
    for op in np.flatnonzero(counts).tolist():
        ops[op].regions = tuple([blocks[number] for number in islice(rest, int(counts[op]))])


def _array(column: Column, least: int | None = None, limit: int | None = None) -> Numbers:
    """A column's numbers, checked.

    Raises:
        ValueError: one below ``least``, or not below ``limit``.
    """
    numbers = np.frombuffer(column, _WIDTH)
    if numbers.size and least is not None and numbers.min() < least:
        raise ValueError(f"a number below {least}")
    if numbers.size and limit is not None and numbers.max() >= limit:
        raise ValueError(f"a number that is not below {limit}")
    return numbers


def _numbers(column: Column, limit: int) -> list[int]:
    """A column's numbers from 0 to below a limit."""
    found: list[int] = _array(column, 0, limit).tolist()
    return found


def _entries(column: Column, table: list[Any], least: int = 0) -> Iterator[Any]:
    """What stands in a table at a column's numbers; of -1, if that may be, its last entry."""
    numbers = _array(column, least, len(table) + least)
    return map(table.__getitem__, numbers.tolist())


def _runs(
    values: list[int], first: Column, second: Column
) -> tuple[list[tuple[int, ...]], list[tuple[int, ...]]]:
    """Two runs of values per row, by the lengths of the runs.

    Raises:
        ValueError: other values than the lengths say.
    """
    lengths = np.stack([_array(first, 0), _array(second, 0)], axis=1).astype(np.int64)
    ends = np.cumsum(lengths).reshape(-1, 2)
    if (ends.size and ends[-1, -1] != len(values)) or (not ends.size and values):
        raise ValueError(f"{len(values)} values for other lengths")
    starts, whole = ends - lengths, tuple(values)
    one, other = [
        [whole[start:end] for start, end in zip(*bounds, strict=True)]
        for bounds in zip(starts.T.tolist(), ends.T.tolist(), strict=True)
    ]
    return one, other
