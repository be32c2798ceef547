"""``torch.cond`` and ``while_loop``: the products of what runs, counted by hand."""

from __future__ import annotations

import pytest
import torch
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop

import flint
from flint.errors import FlintError
from tests.frontends.torch.in_child import record_in_child

ROWS, WIDTH = 32, 64
#: Multiply and add for each row, and each pair of features.
PRODUCT = 2 * ROWS * WIDTH * WIDTH


def setup(mesh):
    weight = torch.zeros(WIDTH, WIDTH, device="cuda", requires_grad=True)
    return weight, torch.zeros(ROWS, WIDTH, device="cuda", requires_grad=True)


def one(x, weight):
    return (x @ weight).relu()


def two(x, weight):
    return (x @ weight @ weight).relu()


def chosen(weight, x):
    torch.cond(x.sum() > 0, two, one, (x, weight)).sum().backward()


def chosen_by_host(weight, x):
    flag = torch.tensor(True, device="cuda")
    torch.cond(flag, two, one, (x, weight)).sum().backward()


def counted(weight, x):
    def body(index, x):
        return index + 1, one(x, weight)

    start = torch.zeros((), dtype=torch.int64, device="cuda")
    while_loop(lambda index, x: index < 3, body, (start, x))[1].sum().backward()


def by_value(weight, x):
    with torch.no_grad():
        return while_loop(lambda x: x.sum() < 3, lambda x: (x @ weight,), (x,))


def scanned(weight, x):
    with torch.no_grad():
        return scan(lambda carry, row: (carry + row, carry * row), x[0], x)


def compiled(weight, x):
    return torch.compile(by_value)(weight, x)


def products(step, **options):
    found = flint.capture(mesh=(1,), axes=("dp",), setup=setup)(step).capture(options=options)
    graph = found.programs[0].graph
    pairs = zip((node.op for node in graph), graph.flops_by_node().tolist(), strict=True)
    return sum(count for name, count in pairs if "mm" in name) / PRODUCT, found.warnings


# Forward, again in the backward pass (the ReLU's gradient needs its result), and two gradients of
# each product.  A profile of the same steps on a CPU has these products (PyTorch 2.13).
@pytest.mark.parametrize(
    ("step", "expected"),
    [(chosen, 1 + 1 + 2), (chosen_by_host, 2 + 2 + 4), (counted, 3 * (1 + 1 + 2))],
)
def test_products_are_those_of_the_branch_and_the_iterations_that_run(step, expected):
    found, warnings = products(step)
    assert found == expected
    assert any("test_control_flow.py" in text and "assumed to be False" in text
               for text in warnings) == (step is chosen)  # fmt: skip


def test_a_loop_that_ends_by_an_unknown_value_is_an_error_with_its_line():
    with pytest.raises(
        FlintError, match=r"while_loop at .*test_control_flow.py:\d+ .*--trip-count"
    ):
        record_in_child(by_value, setup, (1,), ("dp",))


def test_what_is_not_followed_is_an_error_with_its_line():
    with pytest.raises(FlintError, match=r"scan at .*test_control_flow.py:\d+ is an op"):
        record_in_child(scanned, setup, (1,), ("dp",))


@pytest.mark.parametrize(
    "name", ["", f"test_control_flow.py:{by_value.__code__.co_firstlineno + 2}"]
)
def test_a_loop_runs_as_often_as_is_stated(name):
    found, warnings = products(by_value, trip_count={name: 5})
    assert found == 5
    assert (
        [text for text in warnings if "trip-count" in text or "no loop" in text]
        == [text for text in warnings if text.endswith(": 5 iterations, as --trip-count says")]
        != []
    )


def test_a_trip_count_that_no_loop_needs_is_told():
    _, warnings = products(counted, trip_count=5)
    assert "--trip-count: every loop's trip count is known without it" in warnings


@pytest.mark.thorough
def test_a_compiled_loop_runs_as_often_as_is_stated():
    found = record_in_child(
        compiled, setup, (1,), ("dp",), compile_for="h100-sxm", trip_counts={"": 5}
    )
    assert sum(op.name == "aten.mm.out" for op in found.ops) == 5
    assert any(text.endswith(": 5 iterations, as --trip-count says") for text in found.warnings)


@pytest.mark.thorough
def test_a_compiled_loop_that_ends_by_an_unknown_value_is_an_error():
    with pytest.raises(FlintError, match=r"while_loop at .*--trip-count"):
        record_in_child(compiled, setup, (1,), ("dp",), compile_for="h100-sxm")
