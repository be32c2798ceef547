"""Modules as bytes, so that the process that reads a file need not be the one that uses it.

The idea: ops become columns in MessagePack, and shared values (names, attributes, places in the
source) are stored once in tables; blocks come after those inside their ops.  The bytes contain no
code, and unpacking does not trust them: each number is checked before it is used.

    unpacked(packed(module))        # an equal Module; its locations are resolved
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Hashable, Iterable
from itertools import accumulate, chain, pairwise, repeat
from typing import Annotated, Any, TypeAlias

import msgspec
from msgspec import Meta

from flint.errors import FlintError
from flint.graph.tensor_types import TensorType
from flint.host.collection import uncollected
from flint.stablehlo.packed.forms import PackedArray, ValueReader, ValueWriter
from flint.stablehlo.read.records import Block, Issue, Module, Op, SourceInfo

_Natural: TypeAlias = Annotated[int, Meta(ge=0)]
#: A row of a table, -1 for none.
_Row: TypeAlias = Annotated[int, Meta(ge=-1)]
_Values: TypeAlias = tuple[_Natural, ...]
_Source: TypeAlias = tuple[str, str, int, str, str]

#: Fields of a module that are written unchanged.
_PLAIN = (
    "name", "num_partitions", "num_replicas", "meshes", "donated", "donors", "input_shardings",
    "output_shardings", "input_names", "input_roles", "partitioned", "annotated", "warnings",
    "scheduled", "optimized",
)  # fmt: skip


class PackedModule(msgspec.Struct, frozen=True):
    """A module in columns and tables.

    Attributes:
        functions: name -> its block.
        types: (shape, dtype, bytes, dynamic).
        value_type: per value.
        names, attributes, sources: tables of the ops' names, attributes and places.
        op_names, op_attributes, op_places: their rows, per op, one block after the other.
        operands, results: per op.
        regions: (op, its blocks) of ops with regions; each block comes before the op's own.
        blocks: arguments, number of ops and what is yielded, per block.
        issues: first result, number, stream, what it waits for, and whether a graph launches it.
    """

    name: str
    functions: dict[str, _Natural]
    types: list[tuple[tuple[int, ...], str, int, bool]]
    value_type: list[_Natural]
    names: list[str]
    attributes: list[bytes]
    arrays: list[PackedArray]
    groups: list[bytes]
    sources: list[_Source]
    op_names: list[_Natural]
    op_attributes: list[_Row]
    op_places: list[_Row]
    operands: list[_Values]
    results: list[_Values]
    regions: list[tuple[_Natural, _Values]]
    blocks: list[tuple[_Values, _Natural, _Values]]
    issues: list[tuple[int, int, int, tuple[int, ...], bool]]
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
    annotated: bool
    warnings: dict[str, int]
    scheduled: bool
    optimized: bool


class _Numbers(dict[Any, int]):
    """Numbers of objects in order of first appearance; None has -1."""

    def __init__(self) -> None:
        super().__init__({None: -1})

    def __missing__(self, key: Hashable) -> int:
        number = self[key] = len(self) - 1
        return number

    def rows(self) -> list[Any]:
        """The objects, in the order of their numbers."""
        return list(self)[1:]


class _Packing:
    """The columns of a module while it is packed."""

    def __init__(self) -> None:
        self.names, self.attributes, self.places = _Numbers(), _Numbers(), _Numbers()
        self.writer = ValueWriter()
        self.known: dict[int, int] = {}
        self.known_attributes = {id(None): -1}
        self.op_names: list[int] = []
        self.op_attributes: list[int] = []
        self.op_places: list[int] = []
        self.operands: list[tuple[int, ...]] = []
        self.results: list[tuple[int, ...]] = []
        self.regions: list[tuple[int, tuple[int, ...]]] = []
        self.blocks: list[tuple[tuple[int, ...], int, tuple[int, ...]]] = []

    def block(self, block: Block) -> int:
        """The number of a block, which is packed when it is first met."""
        number = self.known.get(id(block))
        if number is not None:
            return number
        ops = block.ops
        inside = [
            (place, tuple(map(self.block, op.regions)))
            for place, op in enumerate(ops)
            if op.regions
        ]
        before = len(self.op_names)
        self.regions += [(before + place, blocks) for place, blocks in inside]
        names, places, attributes = self.names, self.places, self.known_attributes
        for key, value in {id(op.attrs): op.attrs for op in ops}.items():  # which many ops share
            if key not in attributes:
                attributes[key] = self.attributes[self.writer.text(value or {})]
        self.op_names += [names[op.name] for op in ops]
        self.op_attributes += [attributes[id(op.attrs)] for op in ops]
        self.op_places += [places[op.loc] for op in ops]
        self.operands += [op.operands for op in ops]
        self.results += [op.results for op in ops]
        self.blocks.append((block.args, len(ops), block.yields))
        number = self.known[id(block)] = len(self.blocks) - 1
        return number


@uncollected
def packed(module: Module) -> bytes:
    """A module as bytes; the origins of its ops are resolved now."""
    packing = _Packing()
    functions = {name: packing.block(block) for name, block in module.functions.items()}
    sources = [_source(module.location, place) for place in packing.places.rows()]
    plain: dict[str, Any] = {name: getattr(module, name) for name in _PLAIN}
    return msgspec.msgpack.encode(
        PackedModule(
            functions=functions,
            types=[(item.shape, item.dtype, item.bytes, item.dynamic) for item in module.types],
            value_type=module.value_type,
            names=packing.names.rows(),
            attributes=packing.attributes.rows(),
            arrays=packing.writer.arrays,
            groups=packing.writer.groups,
            sources=sources,
            op_names=packing.op_names,
            op_attributes=packing.op_attributes,
            op_places=packing.op_places,
            operands=packing.operands,
            results=packing.results,
            regions=packing.regions,
            blocks=packing.blocks,
            issues=[
                (value, issue.number, issue.stream, issue.after, issue.graphed)
                for value, issue in module.issues.items()
            ],
            **plain,
        )
    )


def _source(location: Callable[[Hashable], SourceInfo] | None, place: Hashable) -> _Source:
    info = SourceInfo() if location is None else location(place)
    return info.name, info.file, info.line, info.layer, info.phase


@uncollected
def unpacked(data: bytes, name: str = "<module>") -> Module:
    """The module of ``packed``.

    Args:
        data: the bytes from ``packed``.
        name: the file's name, for the error.

    Raises:
        FlintError: not bytes from ``packed``.
    """
    try:
        found = msgspec.msgpack.decode(data, type=PackedModule)
        _check_below(len(found.types), found.value_type)
        blocks = _blocks(found)
        sources = [SourceInfo(*row) for row in found.sources]
        return Module(
            functions={name: blocks[number] for name, number in found.functions.items()},
            value_type=found.value_type,
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
        ValueError, LookupError: the columns contradict each other.
    """
    ends = [part for args, _, yields in found.blocks for part in (args, yields)]
    _check_below(len(found.value_type), chain.from_iterable([*found.operands, *found.results]))
    _check_below(len(found.value_type), chain.from_iterable(ends))
    bounds = [0, *accumulate([count for _, count, _ in found.blocks])]
    lengths = (
        len(found.op_names), len(found.op_attributes), len(found.op_places), len(found.operands),
        len(found.results),
    )  # fmt: skip
    if {*lengths} != {bounds[-1]}:
        raise ValueError(f"blocks of {bounds[-1]} ops for columns of other lengths")
    reader = ValueReader(found.arrays, found.groups)
    # Index -1 means none.
    attributes = [*map(reader.value, found.attributes), None]
    places = [*range(len(found.sources)), None]
    ops = list(
        map(
            Op,
            map(found.names.__getitem__, found.op_names),
            found.operands,
            found.results,
            map(attributes.__getitem__, found.op_attributes),
            repeat(()),
            map(places.__getitem__, found.op_places),
        )
    )
    blocks = [
        Block(args, ops[start:end], yields)
        for (args, _, yields), (start, end) in zip(found.blocks, pairwise(bounds), strict=True)
    ]
    for op, inside in found.regions:
        if max(inside, default=-1) >= bisect_right(bounds, op) - 1:
            raise ValueError("regions that are not before the op's own block")
        ops[op].regions = tuple([blocks[number] for number in inside])
    return blocks


def _check_below(limit: int, numbers: Iterable[int]) -> None:
    """Refuse numbers that are not below a limit.

    Raises:
        ValueError: one is not.
    """
    if max(numbers, default=-1) >= limit:
        raise ValueError(f"a number that is not below {limit}")
