"""Communication that few programs use, captured."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402

import flint  # noqa: E402


def gathered_in_one(mesh, x, y):
    lists = [[torch.empty_like(x), torch.empty_like(y)] for _ in range(mesh.size())]
    dist.monitored_barrier()
    dist.all_gather_coalesced(lists, [x, y])
    return lists[2][0], lists[3][1]


def two_tensors(mesh):
    return mesh, *(torch.ones(count, device=mesh.device_type) for count in (16, 3))


def test_tensors_that_are_gathered_together_are_one_communication():
    """16 and 3 numbers of 4 bytes of each of four ranks; gloo's barrier is one of the hosts."""
    workload = flint.capture(gathered_in_one, mesh=(4,), axes=("dp",), setup=two_tensors).capture()
    (found,) = [node.communication for node in workload.programs[0].graph if node.communication]
    assert found.kind == "all_gather"
    assert (found.operand_bytes, found.result_bytes) == ((19 * 4,), (4 * 19 * 4,))
    (text,) = [text for text in workload.warnings if text.startswith("monitored_barrier at ")]
    assert workload.warnings[text] == 1
