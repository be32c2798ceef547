"""Reading ETs: framing, corrupt input, and the two decoders against each other.

Longer than 300 lines because both decoders are held against each other on the same files.
"""

from __future__ import annotations

import gzip
import os
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flint.converters.chakra import et_def_pb2 as pb
from flint.converters.chakra.read.fast import decode_plain
from flint.converters.chakra.read.framing import FramingError, MissingMetadata, split_records
from flint.converters.chakra.read.reader import (
    TraceReader,
    _decode_any,
    decode_trace,
    read_trace,
)
from flint.converters.chakra.read.trace import INT_ATTRIBUTES, Csr, Trace
from flint.converters.chakra.schema import (
    FIELD_OF,
    CollectiveKind,
    NodeField,
    NodeType,
    ValueField,
)
from flint.errors import FlintError
from tests.converters.chakra.check.traces import METADATA, coll, comp, encode, frame, recv, send
from tests.support.shared import examples

U64 = st.integers(0, (1 << 64) - 1)
I64 = st.integers(-(1 << 63), (1 << 63) - 1)
I32 = st.integers(-(1 << 31), (1 << 31) - 1)
TEXT = st.text(max_size=12)

SAMPLE = [
    comp(0, num_ops=10, tensor_size=1 << 40, micros=300),
    coll(1, [0], involved_dim=[True, False]),
    send(2, 1, [1], size=1 << 34),
    recv(300, 1, [0, 2], pg_name="12"),
]


@st.composite
def attributes(draw, plain: bool):
    attr = pb.AttributeProto()
    if plain:
        name = draw(st.sampled_from(list(FIELD_OF)))
        field = FIELD_OF[name].proto_name
        integers = ["int32_val", "int64_val", "uint32_val", "uint64_val", "bool_val"]
        if name in INT_ATTRIBUTES and draw(st.booleans()):
            field = draw(st.sampled_from(integers))
    else:
        name = draw(st.one_of(st.sampled_from(list(FIELD_OF)), TEXT))
        field = draw(st.sampled_from([item.proto_name for item in ValueField]))
        if draw(st.booleans()):
            attr.doc_string = draw(TEXT)
    attr.name = name
    base = field.rsplit("_", 1)[0]
    if base in ("int32", "sint32", "sfixed32"):
        value = I32
    elif base in ("int64", "sint64", "sfixed64"):
        value = I64
    elif base in ("uint32", "fixed32"):
        value = st.integers(0, (1 << 32) - 1)
    elif base in ("uint64", "fixed64"):
        value = U64
    elif base == "bool":
        value = st.booleans()
    elif base == "string":
        value = TEXT
    elif base == "bytes":
        value = st.binary(max_size=5)
    else:
        value = st.floats(width=32)
    if field.endswith("_list"):
        getattr(attr, field).values.extend(draw(st.lists(value, max_size=4)))
    elif draw(st.integers(0, 9)):
        setattr(attr, field, draw(value))
    return attr


@st.composite
def nodes(draw, plain: bool):
    made = pb.Node(
        id=draw(st.one_of(st.integers(0, 300), U64)),
        name=draw(TEXT),
        type=draw(st.integers(0, 7) if plain else I32),
        ctrl_deps=draw(st.lists(U64, max_size=3)),
        data_deps=draw(st.lists(st.one_of(st.integers(0, 300), U64), max_size=5)),
        start_time_micros=draw(U64),
        duration_micros=draw(U64),
        attr=draw(
            st.lists(
                attributes(plain), max_size=6, unique_by=(lambda item: item.name) if plain else None
            )
        ),
    )
    if not plain and draw(st.booleans()):
        made.inputs.values = draw(TEXT)
    return made


def assert_same(one: Trace, two: Trace) -> None:
    for column in fields(Trace):
        left, right = getattr(one, column.name), getattr(two, column.name)
        if isinstance(left, np.ndarray):
            assert left.dtype == right.dtype and left.tolist() == right.tolist(), column.name
        elif isinstance(left, Csr):
            assert left.start.tolist() == right.start.tolist()
            assert left.ids.tolist() == right.ids.tolist()
            assert (left.start.dtype, left.ids.dtype) == (right.start.dtype, right.ids.dtype)
        elif column.name == "field":
            assert {k: v.tolist() for k, v in left.items()} == {
                k: v.tolist() for k, v in right.items()
            }
        else:
            assert left == right, column.name


def by_protobuf(data: bytes) -> Trace:
    starts, ends = split_records(data, "x")
    return _decode_any(data, starts[1:], ends[1:], "x", "0.0.4")


def test_schema_constants_are_those_of_the_proto_file():
    value = {f.name: f.number for f in pb.AttributeProto.DESCRIPTOR.oneofs_by_name["value"].fields}
    assert {item.proto_name: int(item) for item in ValueField} == value
    assert {f.name.upper(): f.number for f in pb.Node.DESCRIPTOR.fields} == {
        item.name: int(item) for item in NodeField
    }
    assert dict(pb.CollectiveCommType.items()) == {item.name: int(item) for item in CollectiveKind}
    names = {name.removesuffix("_NODE").removeprefix("COMM_"): n for name, n in pb.NodeType.items()}
    assert names == {item.name: int(item) for item in NodeType}


@given(st.lists(nodes(plain=True), max_size=8))
def test_plain_files_take_the_fast_way_and_mean_the_same(written):
    data = encode(written)
    starts, ends = split_records(data, "x")
    fast = decode_plain(data, starts[1:], ends[1:], "x", "0.0.4")
    if fast is None:  # only an attribute without value is not plain
        assert any(not attr.WhichOneof("value") for item in written for attr in item.attr)
    else:
        assert_same(fast, by_protobuf(data))


@given(st.lists(nodes(plain=False), max_size=8))
def test_any_file_means_the_same_either_way(written):
    data = encode(written)
    assert_same(decode_trace(data, "x"), by_protobuf(data))


@settings(max_examples=examples(300))
@given(st.lists(nodes(plain=True), min_size=1, max_size=4), st.data())
def test_a_changed_byte_is_an_error_or_read_as_protobuf_reads_it(written, draw):
    data = bytearray(encode(written))
    at = draw.draw(st.integers(0, len(data) - 1))
    data[at] = draw.draw(st.integers(0, 255))
    try:
        trace = decode_trace(bytes(data), "x")
    except FlintError:
        return
    starts, ends = split_records(bytes(data), "x")
    expected = _decode_any(bytes(data), starts[1:], ends[1:], "x", trace.version)
    assert_same(trace, expected)


def test_columns_of_a_known_file():
    trace = decode_trace(encode(SAMPLE), "x")
    assert trace.id.tolist() == [0, 1, 2, 300]
    assert trace.type.tolist() == [4, 7, 5, 6]
    assert trace.duration.tolist() == [300, 5, 5, 5]
    assert trace.tensor_size.tolist() == [1 << 40, 0, 0, 0]
    assert trace.comm_size.tolist() == [0, 64, 1 << 34, 8]
    assert trace.data_deps.start.tolist() == [0, 0, 1, 2, 4]
    assert trace.data_deps.ids.tolist() == [0, 1, 0, 2]
    assert trace.field["comm_dst"].tolist() == [0, 0, ValueField.INT32, 0]
    assert trace.involved_dims[trace.involved_dim[1]] == (True, False)
    assert trace.pg_names[trace.pg_name[3]] == "12"


def test_truncation_at_every_byte_is_one_clear_error(tmp_path):
    data = encode(SAMPLE)
    _, ends = split_records(data, "x")
    path = tmp_path / "trace.0.et"
    for length in range(len(data)):
        path.write_bytes(data[:length])
        if length in ends:  # whole records: a shorter file, and a valid one
            assert len(read_trace(path)) == ends.index(length)
            continue
        with pytest.raises(FlintError) as caught:
            read_trace(path)
        assert str(path) in str(caught.value)
        if length:
            assert isinstance(caught.value, FramingError) and "byte" in str(caught.value)


def test_truncated_gzip_is_one_clear_error(tmp_path):
    packed = gzip.compress(encode(SAMPLE))
    path = tmp_path / "trace.0.et"
    path.write_bytes(packed)
    assert len(read_trace(path)) == 4
    for length in range(2, len(packed)):
        path.write_bytes(packed[:length])
        with pytest.raises(FlintError):
            read_trace(path)


@settings(max_examples=examples(300))
@given(st.binary(max_size=60))
def test_random_bytes_give_errors_of_ours_only(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("et") / "trace.0.et"
    path.write_bytes(data)
    try:
        read_trace(path)
    except FlintError as error:
        assert str(path) in str(error)


@pytest.mark.parametrize(
    "data",
    [
        METADATA + b"\xff\xff\xff\xff\x0f",  # a length of 4 GiB
        METADATA + b"\xff\xff\xff\xff\xff\x01",  # no varint32
        METADATA + b"\x80\x80\x80\x80\x80\x80",
        METADATA + b"\xff\xff\x7f" + b"\0" * 10,  # longer than the file
    ],
)
def test_lengths_are_believed_only_as_far_as_the_file_goes(tmp_path, data):
    path = tmp_path / "trace.0.et"
    path.write_bytes(data)
    with pytest.raises(FramingError, match=f"byte {len(METADATA)}"):
        read_trace(path)


def test_corrupt_node_is_located(tmp_path):
    path = tmp_path / "trace.0.et"
    path.write_bytes(METADATA + frame(comp(0)) + b"\x02\x12\x09")
    at = len(METADATA) + len(frame(comp(0))) + 1
    with pytest.raises(FramingError, match=f"corrupt node at byte {at}"):
        read_trace(path)


def test_first_node_is_not_taken_for_metadata(tmp_path):
    path = tmp_path / "trace.0.et"
    path.write_bytes(frame(comp(0)))
    with pytest.raises(MissingMetadata):
        read_trace(path)


def test_empty_metadata_is_metadata(tmp_path):
    path = tmp_path / "trace.0.et"
    path.write_bytes(b"\0" + frame(comp(7)))
    trace = read_trace(path)
    assert (trace.id.tolist(), trace.version) == ([7], "")


def test_missing_file_is_a_clear_error(tmp_path):
    with pytest.raises(FlintError, match="cannot be read"):
        read_trace(tmp_path / "trace.0.et")
    with pytest.raises(FlintError, match="cannot be read"):
        TraceReader().read(tmp_path / "trace.0.et")


def test_equal_files_are_decoded_once(tmp_path):
    first = tmp_path / "trace.0.et"
    first.write_bytes(encode(SAMPLE))
    os.link(first, tmp_path / "trace.1.et")
    (tmp_path / "trace.2.et").write_bytes(encode(SAMPLE))
    (tmp_path / "trace.3.et").write_bytes(encode(SAMPLE[:2]))
    reader = TraceReader()
    traces = [reader.read(tmp_path / f"trace.{rank}.et") for rank in range(4)]
    assert traces[0] is traces[1] is traces[2] is not traces[3]
    assert reader.files_decoded == 2


def test_equal_columns_share_memory(tmp_path):
    for rank, name in enumerate(("1", "2")):
        nodes = [comp(0), coll(1, [0], pg_name=name)]
        Path(tmp_path / f"trace.{rank}.et").write_bytes(encode(nodes))
    reader = TraceReader()
    one, two = (reader.read(tmp_path / f"trace.{rank}.et") for rank in range(2))
    assert one.pg_names != two.pg_names
    assert one.id is two.id and one.data_deps.ids is two.data_deps.ids


@given(st.lists(nodes(plain=True), min_size=1, max_size=6), st.data())
def test_similar_files_are_read_as_by_themselves(tmp_path_factory, written, draw):
    """Patch bytes of a file: whatever way the reader takes, the result is that of a full decode."""
    folder = tmp_path_factory.mktemp("et")
    one, two = folder / "trace.0.et", folder / "trace.1.et"
    filler = [comp(1000 + number) for number in range(8)]  # so that few of the nodes change
    data = bytearray(encode([*written, *filler]))
    one.write_bytes(data)
    for _ in range(draw.draw(st.integers(1, 3))):
        at = draw.draw(st.integers(len(METADATA), len(data) - 1))
        data[at] = (data[at] + draw.draw(st.sampled_from([1, 2, 8, 255]))) % 256
    two.write_bytes(data)
    reader = TraceReader()
    reader.read(one)
    try:
        expected = read_trace(two)
    except FlintError:
        with pytest.raises(FlintError):
            reader.read(two)
        return
    assert_same(reader.read(two), replace(expected, path=reader.read(two).path))


def test_only_changed_nodes_are_decoded(tmp_path):
    reader = TraceReader()
    for rank in range(4):
        nodes = [comp(number) for number in range(98)]
        nodes += [send(98, rank + 1, [97]), coll(99, [98], pg_name=str(rank + 1))]
        (tmp_path / f"trace.{rank}.et").write_bytes(encode(nodes))
    traces = [reader.read(tmp_path / f"trace.{rank}.et") for rank in range(4)]
    assert reader.nodes_decoded == 100 + 3 * 2
    for rank, trace in enumerate(traces):
        assert_same(trace, read_trace(tmp_path / f"trace.{rank}.et"))
        assert trace.comm_dst[98] == rank + 1 and trace.pg_names == (str(rank + 1),)
    assert traces[3].id is traces[0].id and traces[3].comm_size is traces[0].comm_size


def test_number_of_nodes_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr("flint.converters.chakra.read.framing.MAX_NODES", 10)
    path = tmp_path / "trace.0.et"
    path.write_bytes(METADATA + bytes(10))
    assert len(read_trace(path)) == 10
    path.write_bytes(METADATA + bytes(11))
    with pytest.raises(FramingError, match="more than 10 nodes"):
        read_trace(path)
