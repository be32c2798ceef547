"""Files that are not a complete trace: one clear line."""

from __future__ import annotations

import gzip
import json
import lzma

import pytest

from flint.converters.profilers.pytorch_et.observe import UNFINISHED
from flint.errors import FlintError, UsageError
from flint.observed.classes import OpClass, aten_class, base_name
from flint.observed.reading import read_trace
from tests.converters.profilers.test_readers import DATA, event


@pytest.mark.parametrize("schema", ["1.0.0", "1.2.0-chakra.0.0.9", "nonsense", None])
def test_an_unknown_schema_is_refused_by_its_version(schema, tmp_path):
    path = tmp_path / "et.json"
    path.write_text(json.dumps({"nodes": []} | ({"schema": schema} if schema else {})))
    with pytest.raises(FlintError, match=r"schema.*known are 1\.0\.1 to 1\.1\.1"):
        read_trace(path)


def content(text):
    return text.encode() if isinstance(text, str) else text


REAL = gzip.decompress((DATA / "traces/resnet50_ddp_nccl_rank0.json.gz").read_bytes())


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (gzip.compress(REAL)[:5000], "damaged gzip|truncated gzip data|cannot be read"),
        ('{"traceEvents": [{"ph": "X", "cat": "cpu_op", "ts": 1}, oops]}', "damaged at character"),
        ('{"traceEvents": []}', "neither CPU ops nor kernels in it: export before"),
        (  # of another tool
            '{"traceEvents": [{"ph": "X", "cat": "compute", "name": "x", "ts": 1, "dur": 2}]}',
            "neither CPU ops nor kernels in it: .*compute.* \\(1 times\\)",
        ),
        ('{"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "x"}]}', "event without times"),
        (
            '{"traceEvents": [{"ph": "X", "cat": "cpu_op", "ts": 1}], "x": oops}',
            "damaged or cut off",
        ),
        ('{"traceEvents": [{"ph": "X", "cat": "cp', "neither CPU ops nor kernels in it"),
        ('{"answer": 42}', "neither a Kineto trace"),
        ("hello", "not a trace of a known format"),
        ("version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "git lfs pull"),
        ("", "not a trace of a known format"),
        (b"\xff\xfe\x00", "not a trace of a known format"),
        (b'{"traceEvents": [\xff]}', "not UTF-8"),
        ('{"schema": "1.1.1", "nodes": [{"id": "x"}]}', "a node without id"),
        ('{"schema": "1.1.1", "nodes": []}', "contains no ops"),
        ('{"schema": "1.1.1", "nodes": [' + "[" * 100_000, "nested too deeply"),
        ('{"traceEvents": [{"ph": "X", "ts": ' + "9" * 5000 + "}]}", "damaged"),
        ('{"traceEvents": [{"ph": "X", "cat": "kernel", "ts": 1e30}]}', "an invalid time"),
        ('{"traceEvents": [{"ph": "X", "cat": "kernel", "ts": -1}]}', "an invalid time"),
        ('{"traceEvents": [{"ph": "X", "cat": "kernel", "ts": 1, "dur": -5}]}', "an invalid time"),
        ('{"traceEvents": [{"ph": "X", "cat": "cpu_op", "ts": 1e999}]}', "event without times"),
    ],
    ids=range(21),
)
def test_what_is_not_a_whole_trace_is_one_clear_line(data, said, tmp_path):
    path = tmp_path / "some.json"
    path.write_bytes(content(data))
    with pytest.raises(FlintError, match=said) as caught:
        read_trace(path)
    assert "some.json" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_execution_trace_ends_with_its_last_whole_step(tmp_path):
    """A node is written when its op ends: in that of ResNet-50, each step's mark after its ops."""
    packed = DATA / "profiles/resnet_et.json.xz"
    document = json.loads(lzma.decompress(packed.read_bytes()))
    nodes = document.pop("nodes")
    marks = [i for i, node in enumerate(nodes) if node["name"].startswith("ProfilerStep")]
    assert len(marks) == 3
    path = tmp_path / "et_rank0.json"
    some = ",\n".join(json.dumps(node) for node in nodes[: marks[1] + 2_001])
    path.write_text(f'{json.dumps(document)[:-1]}, "nodes": [{some},\n')
    trace = read_trace(path)
    assert trace.steps == tuple(nodes[i]["name"] for i in marks[:2])
    # The mark before the ops of a step, and what precedes the first one.
    assert [int((trace.step == step).sum()) for step in (0, 1)] == [marks[1] - marks[0]] * 2
    assert trace.notes[UNFINISHED] == 2_000


@pytest.mark.parametrize("depth", [10, 3000])
def test_a_long_list_of_process_groups_before_the_events_is_read(depth, tmp_path):
    path = tmp_path / "some"
    groups = [{"pg_name": str(n), "ranks": list(range(8))} for n in range(depth)]
    document = {"schemaVersion": 1, "distributedInfo": {"rank": 2, "pg_config": groups}}
    document["traceEvents"] = [event("aten::mm", 1, 1)]
    path.write_text(json.dumps(document))
    assert read_trace(path).ranks == (2,)


def test_a_file_that_is_not_there_is_a_usage_error(tmp_path):
    with pytest.raises(UsageError, match="no such file"):
        read_trace(tmp_path / "no.json")


@pytest.mark.parametrize(
    ("name", "base", "kind"),
    [
        ("aten::addmm", "addmm", OpClass.GEMM),
        ("aten.mm.default", "mm", OpClass.GEMM),
        ("aten::add_", "add", OpClass.ELEMENTWISE),
        ("aten._foreach_add_.List", "_foreach_add", OpClass.ELEMENTWISE),
        ("aten::convolution_backward", "convolution_backward", OpClass.CONVOLUTION),
        ("aten::cudnn_convolution", "cudnn_convolution", OpClass.CONVOLUTION),
        ("aten::native_batch_norm", "native_batch_norm", OpClass.REDUCTION),
        (
            "aten::_scaled_dot_product_flash_attention_backward",
            "_scaled_dot_product_flash_attention_backward",
            OpClass.ATTENTION,
        ),
        ("aten::_to_copy", "_to_copy", OpClass.COPY),
        ("aten::view", "view", OpClass.FREE),
        ("aten::something_new", "something_new", OpClass.OTHER),
    ],
)
def test_classes_of_pytorchs_ops(name, base, kind):
    assert base_name(name) == base
    assert aten_class(name) == kind
