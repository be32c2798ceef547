"""Saved programs of every form are recognised by content; everything else is one clear error."""

import bz2
import gzip
import json
import lzma
import os
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jaxlib._jax import mlir as xla_mlir

from flint.errors import FlintError
from flint.frontends.saved.kinds import Kind, detect
from flint.frontends.saved.parsing import parse
from flint.frontends.saved.reading import read
from flint.hlo.text import proto_of_text
from flint.host.packed_files import Content, read_once, unpacked

MLIR = b"""module @m {
  func.func public @main(%arg0: tensor<8xf32>) -> tensor<8xf32> {
    %0 = stablehlo.negate %arg0 : tensor<8xf32>
    return %0 : tensor<8xf32>
  }
}
"""
HLO = b"""HloModule m, num_partitions=8

ENTRY main {
  p = f32[8] parameter(0)
  ROOT n = f32[8] negate(p)
}
"""


def varint(number):
    encoded = bytearray()
    while number > 127:
        encoded.append(number & 127 | 128)
        number >>= 7
    return bytes([*encoded, number])


@pytest.fixture(scope="module")
def forms():
    module = proto_of_text(HLO.replace(b", num_partitions=8", b""))
    return {
        Kind.MLIR_TEXT: MLIR,
        Kind.MLIR_BYTECODE: xla_mlir.hlo_to_stablehlo(module),
        Kind.VHLO: xla_mlir.serialize_portable_artifact(MLIR, "1.0.0"),
        Kind.HLO_TEXT: HLO,
        Kind.HLO_MODULE_PROTO: module,
        Kind.HLO_PROTO: b"\x0a" + varint(len(module)) + module,
    }


PROGRAM_KINDS = [
    Kind.MLIR_TEXT, Kind.MLIR_BYTECODE, Kind.VHLO, Kind.HLO_TEXT, Kind.HLO_MODULE_PROTO,
    Kind.HLO_PROTO,
]  # fmt: skip


@pytest.mark.parametrize("kind", PROGRAM_KINDS)
def test_form_is_recognised_and_read(forms, kind, tmp_path):
    assert detect(forms[kind]) is kind
    path = tmp_path / "program.with-no-telling-name"
    path.write_bytes(forms[kind])
    module = read(read_once(path, 1 << 20))
    assert [op.name for op in module.functions["main"].ops] == ["negate"]


@pytest.mark.parametrize("kind", PROGRAM_KINDS)
@pytest.mark.parametrize("times", [1, 2])
def test_gzip_is_looked_through(forms, kind, times):
    data = forms[kind]
    for _ in range(times):
        data = gzip.compress(data)
    assert detect(data) is Kind.GZIP
    assert [op.name for op in parse(data).functions["main"].ops] == ["negate"]


def test_gzip_three_times_is_refused():
    data = gzip.compress(gzip.compress(gzip.compress(MLIR)))
    with pytest.raises(FlintError, match="gzip"):
        parse(data, "f.gz")


def refused(data):
    """What the error about a file says after its name."""
    with pytest.raises(FlintError) as caught:
        read(Content(Path("cut.file"), data))
    name, _, text = str(caught.value).partition(": ")
    assert name == "cut.file"
    assert "\n" not in text
    return text


@pytest.mark.parametrize("kind", PROGRAM_KINDS)
def test_cut_program_is_one_line_that_names_the_file(forms, kind):
    data = forms[kind]
    assert refused(data[:1])
    assert refused(data[: len(data) // 2])


@pytest.mark.thorough
@pytest.mark.parametrize("kind", PROGRAM_KINDS)
def test_a_program_cut_anywhere_is_one_line_that_names_the_file(forms, kind):
    data = forms[kind]
    for end in {5, len(data) // 3, len(data) - 12}:
        assert refused(data[:end])


def test_hlo_text_keeps_the_header_counts():
    assert parse(HLO).num_partitions == 8


def test_comments_may_precede_a_module():
    assert detect(b"// saved by hand\n\n// twice\n" + MLIR) is Kind.MLIR_TEXT
    assert detect(b"// saved by hand\n" + HLO) is Kind.HLO_TEXT


def test_text_that_xla_refuses_gives_its_reason():
    with pytest.raises(FlintError, match=r"f\.hlo: not valid HLO text: .*frobnicate"):
        parse(HLO.replace(b"negate", b"frobnicate"), "f.hlo")


def zipped(tmp_path):
    path = tmp_path / "x.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a", "b")
    return path.read_bytes()


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"", Kind.EMPTY),
        (json.dumps({"schemaVersion": 1, "traceEvents": []}).encode(), Kind.CHROME_TRACE),
        (json.dumps({"schema": "1.0.2-chakra.0.0.4", "nodes": []}).encode(), Kind.PYTORCH_ET),
        (b'{"a": 1}', Kind.JSON),
        (b"import jax\n\ndef step(x):\n    return x\n", Kind.PYTHON),
        (b"hello\n", Kind.TEXT),
        (b"\x80\x04\x95\x00", Kind.PICKLE),
        (b"\x7fELF\x02\x01", Kind.EXECUTABLE),
        (b"\x93NUMPY\x01\x00", Kind.NUMPY),
        (b"NVIDIA Tegra Profiler Report\x00", Kind.NSYS),
        (lzma.compress(b"HloModule m"), Kind.COMPRESSED),
        (bz2.compress(b"HloModule m"), Kind.COMPRESSED),
        (bytes(range(256)), Kind.UNKNOWN),
    ],
)
def test_other_files_are_named_and_refused(data, kind):
    assert detect(data) is kind
    with pytest.raises(FlintError) as caught:
        parse(data, "some.file")
    assert str(caught.value).startswith(f"some.file: this is {kind.value}; ")


def test_zip_archives_and_arrays_are_named(tmp_path):
    assert detect(zipped(tmp_path)) is Kind.ZIP
    np.save(tmp_path / "a.npy", np.arange(3))
    assert detect((tmp_path / "a.npy").read_bytes()) is Kind.NUMPY


def test_cut_gzip_reports_it():
    data = gzip.compress(MLIR)
    with pytest.raises(FlintError, match="truncated gzip data"):
        parse(data[:-12], "f.gz")


def test_damaged_gzip_reports_it():
    data = bytearray(gzip.compress(os.urandom(1000)))
    data[-8] ^= 1  # the checksum
    with pytest.raises(FlintError, match="damaged gzip"):
        parse(bytes(data), "f.gz")


def test_gzip_members_are_joined():
    whole = gzip.compress(MLIR[:40]) + gzip.compress(MLIR[40:])
    assert unpacked(whole, "f.gz", 1 << 20) == MLIR


@given(st.binary(max_size=300))
def test_any_bytes_have_a_kind(data):
    kind = detect(data)
    assert kind in Kind
    if kind not in PROGRAM_KINDS and kind is not Kind.GZIP:
        with pytest.raises(FlintError):
            parse(data)


@given(st.binary(max_size=300))
def test_bytes_that_look_like_a_program_are_refused(tail):
    for head in (b"\x0a\x01m\x12\x01e", b"\x1f\x8b\x08", b"module ", b"HloModule\xff "):
        with pytest.raises(FlintError):
            parse(head + tail)
