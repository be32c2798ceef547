"""A file that ends, hangs or overfills the process that parses it costs one line of error."""

import gzip
import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from jax import export
from jaxlib._jax import mlir as xla_mlir
from jaxlib.mlir.dialects import stablehlo

from flint.errors import FlintError, UsageError
from flint.frontends.saved import reading
from flint.frontends.saved.reading import read
from flint.host.packed_files import Content, read_once

DATA = Path(__file__).parents[2] / "data"
MLIR = b"""module @m {
  func.func public @main(%arg0: tensor<8xf32>) -> tensor<8xf32> {
    %0 = stablehlo.negate %arg0 : tensor<8xf32>
    return %0 : tensor<8xf32>
  }
}
"""
BODY = b"""func.func public @main(%arg0: tensor<f32>) -> tensor<f32> {
  OPS
  return %arg0 : tensor<f32>
}
"""


def of(data, name="f.mlir"):
    return Content(Path(name), data)


def refusal(data, **options):
    with pytest.raises(FlintError) as caught:
        read(of(data), **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def nested_regions(depth):
    return BODY.replace(b"OPS", b'"x.y"() ({\n' * depth + b"}) : () -> ()\n" * depth)


def nested_attributes(depth):
    return BODY.replace(b"OPS", b'"x.y"() {a = ' + b"[" * depth + b"]" * depth + b"} : () -> ()")


def nested_call_sites(depth):
    inner = b"callsite(" * depth + b'"a":1:1' + b' at "b":1:1)' * depth
    return BODY.replace(b"OPS", b'"x.y"() : () -> () loc(' + inner + b")")


@pytest.mark.parametrize(
    "data", [nested_regions(20_000), nested_attributes(8_000), nested_call_sites(30_000)],
    ids=["regions", "attributes", "call sites"],
)  # fmt: skip
def test_nesting_that_overflows_the_stack_is_reported(data):
    """In the process that calls it, each of these is a segmentation fault."""
    assert refusal(data) == (
        "f.mlir: damaged, or nested too deeply: during reading, its process died of SIGSEGV"
    )


def test_types_that_are_nested_deeper_than_python_goes_are_reported():
    kind = b"tuple<" * 3_000 + b"tensor<f32>" + b">" * 3_000
    made = b'%0 = "x.y"() : () -> ' + kind
    assert "nested too deeply" in refusal(BODY.replace(b"OPS", made))


def test_a_string_that_is_not_utf8_is_reported():
    """One flipped byte in bytecode: the bindings abort the process that asks for the string."""
    named = MLIR.replace(b"@m {", b"@abcdefgh {")
    data = xla_mlir.serialize_portable_artifact(named, "1.0.0")
    assert data.count(b"abcdefgh") == 1
    text = refusal(data.replace(b"abcdefgh", b"abcd\xffghi"))
    assert text.startswith("f.mlir: ")


def child_that(does, monkeypatch, tmp_path):
    """The reader's process with one second of processor time, which does something else."""
    text = "import sys; from flint.host.child_processes import restrict\n"
    text += "restrict(int(sys.argv[1]), int(sys.argv[2]))\nsys.stdin.readline()\n" + does
    (tmp_path / "a_reader_of_a_test.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(reading, "_CHILD", "a_reader_of_a_test")
    monkeypatch.setattr(reading, "START_SECONDS", 1)


def test_a_parser_that_aborts_is_reported_with_its_last_words(monkeypatch, tmp_path):
    child_that(
        "import os; os.write(2, b'LLVM ERROR: no such thing\\n'); os.abort()", monkeypatch, tmp_path
    )
    text = refusal(MLIR)
    assert text.endswith("its process died of SIGABRT (LLVM ERROR: no such thing)")


def test_a_parser_that_works_for_ever_is_too_slow_here(monkeypatch, tmp_path):
    child_that("while True: pass", monkeypatch, tmp_path)
    assert "reading took more than 1 s of processor time and was stopped" in refusal(MLIR)


def test_a_parser_that_waits_for_ever_is_stopped(monkeypatch, tmp_path):
    child_that("import threading; threading.Event().wait()", monkeypatch, tmp_path)
    monkeypatch.setattr(reading, "_BUSY", 0.5)
    assert refusal(MLIR).startswith("f.mlir: reading it took more than 0.5 s and was stopped")


def test_a_parser_that_takes_all_memory_is_stopped_at_the_limit(monkeypatch, tmp_path):
    child_that("a = bytearray(1 << 30)", monkeypatch, tmp_path)
    assert refusal(MLIR, memory_limit=1 << 28) == (
        "f.mlir: reading it takes more than 0.25 GiB of memory: raise the limit (--memory-limit, "
        "in GiB) if you trust the file"
    )


def test_a_parser_that_ends_without_a_word_is_reported(monkeypatch, tmp_path):
    child_that("sys.exit(3)", monkeypatch, tmp_path)
    assert "its process ended with status 3 and no result" in refusal(MLIR)


def test_records_that_no_reader_has_made_are_refused(monkeypatch, tmp_path):
    forged = "from pathlib import Path; Path(sys.argv[3], '1', 'made').write_bytes(b'\\x80')"
    child_that(forged, monkeypatch, tmp_path)
    assert "contradict" in refusal(MLIR)


def test_what_needs_more_memory_than_the_limit_says_what_to_raise():
    ops = b"".join(
        b"%%%d = stablehlo.constant dense<1.0> : tensor<f32>\n" % n for n in range(30_000)
    )
    data = BODY.replace(b"OPS", ops)
    text = refusal(data, memory_limit=128 << 20)
    assert "memory" in text and "--memory-limit" in text
    assert len(read(of(data)).functions["main"].ops) == 30_000


def test_what_a_process_has_reserved_does_not_count_for_its_reader():
    """As pyarrow reserves a GiB: a copy of such a process could read nothing within the limit."""
    script = (
        "import mmap; from pathlib import Path; from flint.frontends.saved.reading import read\n"
        "from flint.host.packed_files import Content\n"
        "held = mmap.mmap(-1, 600 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)\n"
        f"read(Content(Path('f.mlir'), {MLIR!r}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_a_trusted_file_is_read_in_this_process(monkeypatch):
    monkeypatch.setattr(reading, "ModuleProcess", None)
    assert [op.name for op in read(of(MLIR), trusted=True).functions["main"].ops] == ["negate"]


def test_an_entry_that_is_not_there_is_an_error_of_usage():
    with pytest.raises(UsageError, match="no function @other; choose from @main"):
        read(of(MLIR), "other")


def test_missing_file_and_folder(tmp_path):
    with pytest.raises(FlintError, match="No such file"):
        read_once(tmp_path / "nothing.mlir", 1 << 20)
    with pytest.raises(FlintError, match="directory"):
        read_once(tmp_path, 1 << 20)


def test_gzip_data_that_becomes_too_large_says_what_to_raise():
    text = refusal(gzip.compress(bytes(40 << 20)), memory_limit=128 << 20)
    assert text.startswith("f.mlir: larger than 33,554,432 bytes when decompressed: raise the li")


def test_gzip_in_gzip_is_refused_before_it_is_unpacked_to_the_end():
    """A few KB that would become 256 MiB: the reader stops soon after 64."""
    zeros = gzip.compress(bytes(1 << 26), 9) * 4  # members of one file
    assert refusal(gzip.compress(zeros, 9)).endswith("expand by a factor of more than 250")


@pytest.mark.thorough
def test_flipped_bytes_in_bytecode_end_in_a_module_or_an_error(monkeypatch):
    """Among these are bytes on which MLIR's own reader aborts the process."""
    monkeypatch.setattr(reading, "START_SECONDS", 2)
    data = xla_mlir.serialize_portable_artifact(MLIR, "1.0.0")
    for position in range(4, len(data), len(data) // 12):
        damaged = bytearray(data)
        damaged[position] ^= 0x55
        try:
            read(of(bytes(damaged)))
        except FlintError as error:
            assert str(error).startswith("f.mlir: ")


def test_bytecode_of_another_version_names_both_versions_and_the_way_out():
    data = (DATA / "other_versions/jax_0.4.38.mlirbc").read_bytes()
    said = refusal(data)
    assert said.startswith("f.mlir: MLIR20.0.0git has written this bytecode, and the installed")
    assert "save the program as MLIR text" in said
    # What this jaxlib writes and cannot read is damaged.
    ours = (DATA / "stablehlo/cond_8x8.mlirbc").read_bytes()
    assert refusal(ours[:-200]).startswith("f.mlir: not a valid MLIR module: ")


def test_a_portable_artifact_that_cannot_be_read_names_both_versions():
    exported = export.export(jax.jit(jnp.tanh))(jax.ShapeDtypeStruct((8,), "float32"))
    said = refusal(exported.mlir_module_serialized[:-60])
    assert "a portable artifact that is damaged, or too new" in said
    assert f"its own is StableHLO_v{stablehlo.get_current_version()}" in said


def test_a_program_for_sizes_that_are_left_open_is_refused_until_it_has_them():
    [size] = export.symbolic_shape("n")
    exported = export.export(jax.jit(jnp.tanh))
    said = refusal(exported(jax.ShapeDtypeStruct((size, 8), "float32")).mlir_module_serialized)
    assert "the type tensor<?x8xf32> has a dim whose size the program leaves open" in said
    read(of(exported(jax.ShapeDtypeStruct((4, 8), "float32")).mlir_module_serialized))


def test_a_limit_that_is_too_small_for_the_reader_itself_is_called_that():
    said = refusal(MLIR, memory_limit=20 << 20)
    assert "more than 0.0195312 GiB of memory" in said and "--memory-limit" in said
