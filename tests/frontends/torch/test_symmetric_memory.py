"""Ops that communicate through each other's memory, with collectives counted by hand."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import flint  # noqa: E402
from flint.errors import FlintError  # noqa: E402
from tests.programs.comparing import of_ranks  # noqa: E402

WORLD, ROWS, WIDTH, INNER = 4, 8, 16, 24


def setup(mesh):
    device = mesh.device_type
    x, up, down = (
        torch.randn(*shape, device=device)
        for shape in ((ROWS // WORLD, WIDTH), (WIDTH, INNER), (INNER, WIDTH))
    )
    return x, up, down, mesh.get_group().group_name


def sequence_parallel(x, up, down, group):
    ops = torch.ops.symm_mem
    _, (y,) = ops.fused_all_gather_matmul(x, [up], 0, group)
    assert y.shape == (ROWS, INNER)
    z = ops.fused_matmul_reduce_scatter.default(y, down, "sum", 0, group)
    assert z.shape == x.shape
    return z


def in_turn(x, up, down, group):
    whole = torch.ops.symm_mem._low_contention_all_gather(x, group)
    return torch.ops.symm_mem._low_contention_reduce_scatter(whole @ up, "sum", group)


def captured(step):
    return flint.capture(step, mesh=(WORLD,), axes=("tp",), setup=setup).capture()


@pytest.mark.parametrize(
    ("step", "scattered", "products"), [(sequence_parallel, WIDTH, 2), (in_turn, INNER, 1)]
)
def test_products_that_gather_and_scatter_are_collectives_and_products(step, scattered, products):
    workload = captured(step)
    exchanged = [
        ["all_gather", ROWS // WORLD * WIDTH * 4],
        ["reduce_scatter", ROWS * scattered * 4],
    ]
    assert of_ranks(workload) == WORLD * [
        {
            "collectives": {"over 0, 1, 2, 3": exchanged},
            "flops": products * 2 * ROWS * WIDTH * INNER,
        }
    ]
    assert any("symm_mem" in warning for warning in workload.warnings)


def unknown(x, up, down, group):
    return torch.ops.symm_mem.one_shot_all_reduce(x, "sum", group)


def test_others_are_refused_and_no_communication_is_lost():
    with pytest.raises(FlintError, match="one_shot_all_reduce"):
        captured(unknown)
