"""Hand-made execution traces for tests, by way of protobuf and independent of Flint's writer."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from flint.converters.chakra import et_def_pb2 as pb
from flint.converters.chakra.network import GroupTable, Network
from flint.converters.chakra.read.framing import load_bytes, split_records
from flint.converters.chakra.read.reader import decode_trace
from flint.converters.chakra.read.trace_set import TraceSet
from flint.converters.chakra.schema import FIELD_OF, CollectiveKind, NodeType

AR = CollectiveKind.ALL_REDUCE
AG = CollectiveKind.ALL_GATHER
RS = CollectiveKind.REDUCE_SCATTER
A2A = CollectiveKind.ALL_TO_ALL

Attr = int | str | bool | Sequence[bool] | tuple[str, object]


def node(
    number: int,
    kind: NodeType,
    deps: Iterable[int] = (),
    *,
    ctrl: Iterable[int] = (),
    micros: int = 5,
    **attrs: object,
) -> pb.Node:
    """A node; an attribute given as ("int32_val", 3) goes into that field, right or wrong."""
    made = pb.Node(
        id=number, type=int(kind), data_deps=deps, ctrl_deps=ctrl, duration_micros=micros
    )
    for name, value in attrs.items():
        if value is None:
            continue
        field = FIELD_OF[name].proto_name
        if isinstance(value, tuple):
            field, value = value
        attr = made.attr.add(name=name)
        if field.endswith("_list"):
            getattr(attr, field).values.extend(value)
        else:
            setattr(attr, field, value)
    return made


def comp(number: int, deps: Iterable[int] = (), **more: object) -> pb.Node:
    return node(number, NodeType.COMP, deps, is_cpu_op=False, **more)


def coll(
    number: int, deps: Iterable[int] = (), kind: int = AR, size: int = 64, **more: object
) -> pb.Node:
    attrs = {"is_cpu_op": False, "comm_type": int(kind), "comm_size": size} | more
    return node(number, NodeType.COLL, deps, **attrs)


def send(
    number: int, dst: int, deps: Iterable[int] = (), tag: int = 0, size: int = 8, **more: object
) -> pb.Node:
    attrs = {"is_cpu_op": False, "comm_dst": dst, "comm_tag": tag, "comm_size": size} | more
    return node(number, NodeType.SEND, deps, **attrs)


def recv(
    number: int, src: int, deps: Iterable[int] = (), tag: int = 0, size: int = 8, **more: object
) -> pb.Node:
    attrs = {"is_cpu_op": False, "comm_src": src, "comm_tag": tag, "comm_size": size} | more
    return node(number, NodeType.RECV, deps, **attrs)


def frame(message: pb.Node | pb.GlobalMetadata) -> bytes:
    content = message.SerializeToString()
    length, prefix = len(content), b""
    while length >= 0x80:
        prefix += bytes([length & 0x7F | 0x80])
        length >>= 7
    return prefix + bytes([length]) + content


METADATA = frame(pb.GlobalMetadata(version="0.0.4"))


def encode(nodes: Iterable[pb.Node]) -> bytes:
    return METADATA + b"".join(frame(item) for item in nodes)


def records_of(path: Path) -> list[bytes]:
    """The records of a file, its metadata first."""
    data = load_bytes(path)
    starts, ends = split_records(data, str(path))
    return [data[start:end] for start, end in zip(starts, ends, strict=True)]


def read_nodes(path: Path) -> list[pb.Node]:
    """The nodes of a file as protobuf has them."""
    return [pb.Node.FromString(record) for record in records_of(path)[1:]]


def write(
    folder: Path,
    ranks: Sequence[Sequence[pb.Node] | bytes],
    *,
    groups: object = None,
    npus: Sequence[int] | None = None,
    system: dict[str, object] | None = None,
) -> Path:
    """A workload folder; a rank may be given as raw bytes."""
    (folder / "et").mkdir(parents=True)
    (folder / "astra-sim").mkdir()
    for rank, nodes in enumerate(ranks):
        data = nodes if isinstance(nodes, bytes) else encode(nodes)
        (folder / "et" / f"trace.{rank}.et").write_bytes(data)
    if groups is not None:
        text = groups if isinstance(groups, str) else json.dumps(groups)
        (folder / "astra-sim" / "comm_groups.json").write_text(text)
    if npus is not None:
        (folder / "astra-sim" / "network.yml").write_text(f"npus_count: {list(npus)}\n")
    if system is not None:
        (folder / "astra-sim" / "system.json").write_text(json.dumps(system))
    return folder


def in_memory(
    ranks: Sequence[Sequence[pb.Node]],
    *,
    groups: dict[int, list[int]] | None = None,
    npus: Sequence[int] | None = None,
    system: dict[str, object] | None = None,
) -> TraceSet:
    """The same set without files; ranks with equal content share a trace."""
    encoded = {id(nodes): encode(nodes) for nodes in ranks}
    traces = {data: decode_trace(data, "memory") for data in encoded.values()}
    table = GroupTable({key: np.array(ranks) for key, ranks in (groups or {}).items()})
    classes: dict[int, list[int]] = {}
    for rank, nodes in enumerate(ranks):
        classes.setdefault(id(traces[encoded[id(nodes)]]), []).append(rank)
    of_rank = [traces[encoded[id(nodes)]] for nodes in ranks]
    return TraceSet(
        prefix=Path("memory"),
        size=len(ranks),
        network=Network(tuple(npus)) if npus else None,
        groups=table,
        system=system or {},
        traces=tuple(of_rank[first] for first, *_ in classes.values()),
        ranks=tuple(np.array(found, np.int64) for found in classes.values()),
        unreadable={},
        partial=False,
    )
