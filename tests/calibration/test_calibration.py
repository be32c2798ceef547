"""Calibration: curves from kernels whose times follow a formula written here, and their files."""

from __future__ import annotations

import json
import math
import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flint.calibration.fitting import calibrate
from flint.calibration.kernels import MeasuredKernel, as_graph, kernel_of, read_kernels
from flint.calibration.profiles import kernels_of
from flint.calibration.writing import described, page
from flint.cost.accelerators import accelerator_file, load_accelerator
from flint.cost.curves import padded_bytes, seconds_on
from flint.cost.hardware import Curve
from flint.cost.kernels import kernel_seconds
from flint.cost.systems import load_system, whole_description
from flint.errors import FlintError, UsageError
from flint.graph.building import GraphBuilder, TableBuilder
from flint.graph.graph import with_tables
from flint.graph.tensor_types import tensor_type
from flint.graph.work import Role, Unit, Work, WorkItem
from flint.mesh.mesh import Mesh
from tests.cost.test_kernels import product
from tests.simulation.test_simulate import workload_of
from tests.support.command_line import failed, flint_here

V4 = load_accelerator("tpu-v4")
#: Of the device that the test invents: seconds, bytes per second, FLOP/s.
LATENCY, BANDWIDTH, RATE = 3e-6, 400e9, 150e12


def invented(count: int = 60, noise: float = 0.02) -> list[MeasuredKernel]:
    """Kernels of that device: products load and then compute, and come in multiples of its tiles;
    arrays lie in tiles of 8 x 128, whichever way loses less."""
    chance = random.Random(5)
    found = []
    for _ in range(count):
        m, n, k = (128 * chance.randint(1, 24) for _ in range(3))
        taken = LATENCY + 2 * (m * k + k * n + m * n) / BANDWIDTH + 2 * m * n * k / RATE
        measured = taken * math.exp(chance.gauss(0, noise))
        found.append(kernel_of("dot_general", f"{m}x{k} {k}x{n}", "bf16", repr(measured)))
        rows, lanes = chance.randint(1, 3000), chance.randint(1, 300)
        upright = -(-rows // 8) * 8 * -(-lanes // 128) * 128
        lying = -(-rows // 128) * 128 * -(-lanes // 8) * 8
        tiled = min(upright, lying)
        taken = LATENCY + 3 * 2 * tiled / BANDWIDTH
        measured = taken * math.exp(chance.gauss(0, noise))
        found.append(kernel_of("add", f"{rows}x{lanes} {rows}x{lanes}", "bf16", repr(measured)))
    return found


def test_the_numbers_of_an_invented_device_are_found():
    products, sums = calibrate(invented(), V4).groups
    assert products.curve.latency == pytest.approx(LATENCY, rel=0.1)
    assert products.curve.bandwidth == pytest.approx(BANDWIDTH, rel=0.1)
    assert products.curve.efficiency * V4.matmul["bf16"] == pytest.approx(RATE, rel=0.05)
    assert products.curve.overlap == 1
    assert sums.curve.latency == pytest.approx(LATENCY, rel=0.05)
    assert sums.curve.bandwidth == pytest.approx(BANDWIDTH, rel=0.05)
    assert sums.curve.layout == (8, 128)
    for group in (products, sums):
        assert group.held_out.median < 0.03 < group.before.median
        assert group.fit.count == group.held_out.count == 30


def test_what_is_held_out_has_no_part_in_the_fit():
    kernels = invented(20)
    before = calibrate(kernels, V4).groups
    held_out = {
        kernel
        for group in before
        for kernel, f in zip(group.kernels, group.fitted, strict=True)
        if not f
    }
    changed = [replace(k, seconds=7 * k.seconds) if k in held_out else k for k in kernels]
    for one, other in zip(before, calibrate(changed, V4).groups, strict=True):
        assert replace(one.curve, error=0) == replace(other.curve, error=0)
        assert other.held_out.median > 0.8


def test_the_order_of_the_file_does_not_matter():
    kernels = invented(20)
    there, back = calibrate(kernels, V4).groups, calibrate(kernels[::-1], V4).groups
    assert {g.curve.kernel: g.fit.count for g in there} == {
        g.curve.kernel: g.fit.count for g in back
    }
    assert sorted(g.curve.latency for g in there) == pytest.approx(
        sorted(g.curve.latency for g in back), rel=1e-4
    )


def test_a_simulation_takes_the_curve(tmp_path):
    """A product of 1024 x 2048 x 512, by hand: loads, then computes."""
    text = accelerator_file("tpu-v4").read_text()
    (tmp_path / "mine.toml").write_text(described(text, calibrate(invented(), V4), "a.csv"))
    system = whole_description("tpu-v4-pod")
    head, _, tail = system.partition("[accelerator]")
    network = tail[tail.index("[[network]]") :]
    (tmp_path / "pod.toml").write_text(f'accelerator = "mine.toml"\n{head}{network}')
    pod = load_system(tmp_path / "pod.toml")
    [curve] = [item for item in pod.accelerator.curves if item.kernel == "matmul"]
    m, n, k = 1024, 2048, 512
    expected = (
        curve.latency
        + 2 * (m * k + k * n + m * n) / curve.bandwidth
        + 2 * m * n * k / (curve.efficiency * 275e12)
    )
    assert kernel_seconds(product(1, m, n, k), pod)[0] == pytest.approx(expected)
    whole = tmp_path / "whole.toml"
    whole.write_text(whole_description(str(tmp_path / "pod.toml")))
    assert load_system(whole).accelerator == pod.accelerator


def test_types_without_a_curve_keep_their_model():
    curve = Curve("matmul", "f32", 1.0, 1e9)
    system = load_system("tpu-v4-pod")
    calibrated = replace(system, accelerator=replace(system.accelerator, curves=(curve,)))
    graph = product(1, 512, 512, 512)  # bf16
    assert kernel_seconds(graph, calibrated) == kernel_seconds(graph, system)
    every = replace(curve, dtype="any")
    calibrated = replace(system, accelerator=replace(system.accelerator, curves=(every,)))
    assert kernel_seconds(graph, calibrated)[0] > 1.0


@pytest.mark.parametrize(
    ("shape", "elements"),
    [
        ((), 1024), ((100,), 1024), ((1025,), 2048), ((8, 128), 1024), ((128, 8), 1024),
        ((3, 100), 1024), ((5, 3, 200), 5 * 1024 * 2), ((9, 129), 16 * 256), ((64, 1, 8), 1024),
    ],
)  # fmt: skip
def test_tiles_are_filled_up_along_the_two_dims_that_lose_least(shape, elements):
    """By hand; 5 x 3 x 200: 5 of 8 rows x 200 of 256 lanes, three times, is 6,144, less than
    3 of 8 rows five times, 10,240."""
    expected = min(elements, 6144) if shape == (5, 3, 200) else elements
    assert padded_bytes(tensor_type(shape, "f32"), (8, 128)) == 4 * expected


@given(st.lists(st.integers(1, 300), max_size=4), st.sampled_from([(1, 1), (8, 128), (16, 128)]))
def test_tiles_never_hold_less(shape, layout):
    kind = tensor_type(tuple(shape), "bf16")
    assert padded_bytes(kind, layout) >= kind.bytes
    if layout == (1, 1):
        assert padded_bytes(kind, layout) == kind.bytes


@given(st.floats(0, 1), st.floats(0, 1), st.floats(1, 20))
def test_overlap_lies_between_one_after_the_other_and_both_at_once(arithmetic, moved, overlap):
    curve = Curve("matmul", "bf16", 0.0, 1.0, 1.0, overlap)
    [taken] = seconds_on(curve, np.array([arithmetic]), np.array([moved]))
    assert max(arithmetic, moved) * (1 - 1e-9) <= taken <= (arithmetic + moved) * (1 + 1e-9)


def test_measured_kernels_make_a_graph_with_their_work():
    graph = as_graph(
        [
            kernel_of("bmm", "4x8x16 4x16x32", "bf16", "1"),
            kernel_of("linear", "2x8x16 16x32", "bf16", "1"),
            kernel_of("sum", "8x16", "float32", "1"),
            kernel_of("fancy", "8x16", "f32", "1", kind="movement", result="16x8"),
        ]
    )
    assert [node.work.items[0].dims if node.work.items else None for node in graph] == [
        (4, 8, 32, 16), (1, 16, 32, 16), None, None
    ]  # fmt: skip
    assert graph.bytes_written.tolist() == [2 * 4 * 8 * 32, 2 * 16 * 32, 4 * 8, 4 * 128]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the first line must name the columns op, shapes, type, seconds"),
        ("op,shapes,type,seconds,colour\n", "the first line must name"),
        ("op,shapes,type,seconds\n", "has no kernels"),
        ("op,shapes,type,seconds\nadd,8,f32\n", ":2: expected op,shapes,type,seconds"),
        ("op,shapes,type,seconds\nfly,8,f32,1\n", ":2: 'fly' is not a known op"),
        ("op,shapes,type,seconds\nadd,8,f33,1\n", ":2: 'f33' is not an element type"),
        ("op,shapes,type,seconds\nadd,8x?,f32,1\n", ":2: '8x.' is not a shape"),
        ("op,shapes,type,seconds\nadd,8,f32,0\n", ":2: seconds must be above 0, not 0"),
        ("op,shapes,type,seconds\nadd,8,f32,x\n", ":2: could not convert"),
        ("op,shapes,type,seconds\nmm,8x4,f32,1\n", ":2: a product needs two operands"),
        ("op,shapes,type,seconds\nmm,8x4 5x8,f32,1\n", ":2: the operands of a product do not fit"),
    ],
)
def test_faulty_files_name_the_line(tmp_path, text, message):
    path = tmp_path / "kernels.csv"
    path.write_text(text)
    with pytest.raises(UsageError, match=message):
        read_kernels(path)


def test_too_few_kernels_are_not_a_curve():
    kernels = invented(20)
    with pytest.raises(
        FlintError, match=r"too few kernels .*; there are 3 of matmul in bf16, 3 of el"
    ):
        calibrate(kernels[:6], V4)
    few = [kernel_of("sum", "8x16", "f32", "1")]
    found = calibrate([*kernels, *few], V4)
    assert found.left_out == (("reduction", "f32", 1),)
    assert "1 kernels of reduction in f32 are too few" in page(found, "x", "y")


def test_the_page_shows_every_kernel():
    found = calibrate(invented(20), V4)
    text = page(found, "TPU <v4>", "a.csv")
    assert text.count("<circle") == 40 and "TPU &lt;v4&gt;" in text
    assert "held out" in text and "Largest errors" in text


def test_the_command_line_writes_a_description_and_a_page(tmp_path):
    lines = ["op,shapes,type,seconds"]
    lines += [f"{k.op},{k.shapes},{k.dtype},{k.seconds!r}" for k in invented(20)]
    (tmp_path / "a.csv").write_text("\n".join(lines))
    command = ("calibrate", "a.csv", "--accelerator")
    shown = flint_here(*command, "tpu-v4", "-o", "mine.toml", "--html", "a.html", cwd=tmp_path)
    assert "elementwise" in shown.stdout and "wrote mine.toml" in shown.stderr
    assert (tmp_path / "a.html").read_text().startswith("<!DOCTYPE html>")
    again = flint_here(*command, "mine.toml", "-o", "b.toml", "--json", cwd=tmp_path)
    assert len(json.loads(again.stdout)["curves"]) == 2
    assert (tmp_path / "b.toml").read_text() == (tmp_path / "mine.toml").read_text()
    refused = flint_here(*command, "tpu-v4", "-o", "mine.csv", cwd=tmp_path)
    assert "is a TOML file" in failed(refused, 2)


@pytest.mark.parametrize("framework", ["jax", "torch"])
def test_kernels_of_a_workload_are_timed_on_this_machine(tmp_path, loop, framework):
    """The loop's product of 4 x 8 by 8 x 8, a sum of 4 x 8."""
    pytest.importorskip(framework)
    loop.save(tmp_path / "out")
    made = flint_here(
        "microbench", "out", "--framework", framework, "-o", "a.csv", "--repeats", "1", cwd=tmp_path
    )
    assert made.returncode == 0, made.stderr
    kernels = read_kernels(tmp_path / "a.csv")
    assert ("matmul", "4x8 8x8", "f32") in [(k.op, k.shapes, k.dtype) for k in kernels]
    assert ("add", "4x8 4x8", "f32") in [(k.op, k.shapes, k.dtype) for k in kernels]


def test_products_of_a_profile_are_measured_kernels():
    """Two runs of one product and an addition: the median of the two times, one left out."""
    tables = TableBuilder()
    builder = GraphBuilder(tables)
    value = builder.input(tables.type(tensor_type((8,), "f32")))
    product_item = WorkItem(Unit.MATMUL, "bf16", 2 * 4 * 8 * 32 * 16, (4, 8, 32, 16))
    for nanoseconds in (3000, 5000):
        items = (product_item, WorkItem(Unit.MEASURED, "index", nanoseconds))
        builder.compute("aten::bmm: sgemm", Role.OPAQUE, (value,), (), Work(items, 0, 0))
    items = (WorkItem(Unit.VECTOR, "f32", 8), WorkItem(Unit.MEASURED, "index", 7000))
    builder.compute("aten::add: kernel", Role.OPAQUE, (value,), (), Work(items, 32, 0))
    graph = with_tables(builder.finish(()), tables.finish())
    kernels, left = kernels_of(workload_of(graph, mesh=Mesh((1,), ("x",))))
    assert left == 1
    [kernel] = kernels
    assert kernel.seconds == pytest.approx(4e-6)
    assert replace(kernel, seconds=4e-6) == kernel_of("aten::bmm", "4x8x16 4x16x32", "bf16", "4e-6")


def test_kernels_that_are_all_alike_are_too_few(tmp_path):
    """Half of them would be held out, and there is one to fit the curve to."""
    path = tmp_path / "k.csv"
    path.write_text("op,shapes,type,seconds\n" + "add,64x64 64x64,bf16,1e-6\n" * 30)
    with pytest.raises(FlintError, match="too few kernels"):
        calibrate(read_kernels(path), load_accelerator("h100-sxm"))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            f"add,{'x'.join(['1000000000000'] * 8)},bf16,1e-3",
            "larger than the memory of any device",
        ),
        (f"add,{'x'.join(['2'] * 3000)},bf16,1e-3", "larger than the memory of any device"),
        (
            "matmul,1000000000x1000000000 1000000000x1000000000,bf16,1e-3",
            "larger than the memory of any device",
        ),
        (
            "matmul,100000x2000000000 2000000000x100000,bf16,1e-3",
            "larger than the memory of any device",
        ),
        ("add,8x8,bf16,5e-324", "seconds must be above 0"),
        ("add,8x8,bf16,1e308", "seconds must be above 0"),
    ],
)
def test_a_kernel_that_no_device_runs_names_its_line(tmp_path, line, message):
    """100,000 x 100,000 x 2,000,000,000 products are 2e19; 64 bits count to 1.8e19."""
    path = tmp_path / "k.csv"
    path.write_text(f"op,shapes,type,seconds\n{line}\n")
    with pytest.raises(UsageError, match=f"k.csv:2: .*{message}"):
        read_kernels(path)
