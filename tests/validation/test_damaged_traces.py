"""Damaged traces: any change to a file is read or refused in one line, and nothing else."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path

import pytest

from flint.errors import FlintError
from flint.observed.reading import read_trace
from tests.converters.chakra.read.test_observe import pytorch_step
from tests.support.shared import examples
from tests.validation.xplanes import Run, profile

DATA = Path(__file__).parents[1] / "data"
#: What stands where a number, a text, a list or an object is expected.
ODD = (
    None, -1, 10**30, 2**63, -(2**63), 1e300, -0.5, float("nan"), True, "x", "", "[0, 1, 2",
    "\ud800", "[1e9]", [], {}, [[[]]], [None], [10**30], {"a": 1},
)  # fmt: skip


def refused(path):
    """Whether a file is refused, in one line."""
    try:
        read_trace(path)
    except FlintError as error:
        assert "\n" not in str(error)
        return True
    return False


def places(value):
    """Every place in a document, as (container, key)."""
    entries = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in list(entries):
        yield value, key
        if isinstance(inner, dict | list):
            yield from places(inner)


def changed(text, seed):
    """The document with a few places changed or left out."""
    rng, document = random.Random(seed), json.loads(text)
    found = list(places(document))
    for container, key in rng.sample(found, rng.randint(1, 6)):
        if rng.random() < 0.2 and isinstance(container, dict):
            container.pop(key, None)
        elif isinstance(container, dict) or key < len(container):
            container[key] = rng.choice(ODD)
    return json.dumps(document)


@pytest.mark.parametrize(
    ("name", "key"),
    [("resnet50_ddp_nccl_rank0.json.gz", "traceEvents"), ("et_1.0.2_rank0.json.gz", "nodes")],
)
def test_json_with_odd_values_is_read_or_refused(name, key, tmp_path):
    document = json.loads(gzip.decompress((DATA / "traces" / name).read_bytes()))
    document[key] = document[key][:150]
    text, outcomes = json.dumps(document), set()
    for seed in range(examples(120)):
        path = tmp_path / "t.json"
        path.write_text(changed(text, seed))
        outcomes.add(refused(path))
    assert outcomes == {True, False}


def node(number, outer, name):
    nothing = {"values": [], "shapes": [], "types": []}
    return {"id": number, "ctrl_deps": outer, "name": name, "inputs": nothing, "attrs": []}


@pytest.mark.parametrize("around", [(2, 2), (3, 2)])
def test_a_collective_inside_of_itself_is_refused(around, tmp_path):
    path, (first, second) = tmp_path / "t.json", around
    nodes = [
        node(2, first, "c10d::allreduce_"),
        node(3, second, "c10d::allreduce_"),
        node(4, 3, "aten::add"),
    ]
    path.write_text(json.dumps({"schema": "1.1.1", "nodes": nodes}))
    with pytest.raises(FlintError, match=r"t.json: node \d is inside itself by its ctrl_deps"):
        read_trace(path)


@pytest.mark.parametrize("name", ["t.0.et", "t.xplane.pb"])
def test_bytes_changed_anywhere_are_read_or_refused(name, tmp_path):
    path = tmp_path / name
    if name.endswith(".et"):
        pytorch_step(path)
    else:
        profile(Run(DATA / "optimized/gpu_decode_cublas.hlo.pb.gz"), path, 1, runs=1)
    whole, outcomes = path.read_bytes(), set()
    for seed in range(examples(200)):
        rng, data = random.Random(seed), bytearray(whole)
        for _ in range(rng.randint(1, 8)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        cut = rng.randrange(len(data)) if rng.random() < 0.2 else len(data)
        path.write_bytes(data[:cut])
        outcomes.add(refused(path))
    assert True in outcomes


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "the file is empty"),
        # The first bytes of tpu_inference_2.xplane.pb as github.com/openxla/xprof holds it.
        (bytes.fromhex("0aefbfbdefbfbd06"), "it was once saved as text"),
        (b"\x0a\xff\xff\xff", "not an xplane file"),
    ],
    ids=["empty", "saved as text", "another file"],
)
def test_what_is_wrong_with_an_xplane_file_is_said(content, said, tmp_path):
    path = tmp_path / "t.xplane.pb"
    path.write_bytes(content)
    with pytest.raises(FlintError, match=said):
        read_trace(path)
