"""Communication of tensors on the CPU, by gloo, in addition to the GPUs' communication."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")
from flint import load
from tests.programs.comparing import captured, real
from tests.programs.packages import HERE


@pytest.mark.thorough
def test_a_norm_of_offloaded_gradients_is_reduced_on_the_host_as_it_runs(tmp_path):
    """FSDP copies gradients to the CPU; the norms of the four there become one, 4 bytes each."""
    command = str(HERE / "fsdp_offload.py")
    found = captured(tmp_path, 2, "torchrun", "--nproc-per-node=2", command)
    assert found == real(tmp_path, 2, command)
    assert found[0]["collectives"]["over 0, 1"].count(["all_reduce", 4 * 4]) == 1
    [program] = load(tmp_path / "out").programs
    [reduced] = [node for node in program.graph if "all_reduce" in node.op]
    # The host waits for FSDP's copies, which are on one stream, before it computes norms.
    assert [node.op for node in reduced.inputs] == ["aten._to_copy.to_host"]


def test_ops_on_real_tensors_are_not_seen_by_fake_mode_unless_the_device_has_written_one(said):
    """Many run in a data loader; what the device has written is not known, and read as such."""
    found = said("""
        from flint.frontends.torch.programs.host_tensors import is_of_host
        add, copy = torch.ops.aten.add.Tensor, torch.ops.aten._to_copy.default
        host, other = torch.ones(2), torch.ones(2)
        other.copy_(torch.rand(2, device="cuda"))
        say([is_of_host(add, (host, host), {}), is_of_host(add, (host, other), {}),
             is_of_host(add, (host, torch.ones(2, device="cuda")), {}),
             is_of_host(torch.ops.aten.stack.default, ([host, host],), {}),
             is_of_host(torch.ops.aten.stack.default, ([host, other],), {}),
             is_of_host(copy, (host,), {"dtype": torch.int64}),
             is_of_host(copy, (host,), {"device": torch.device("flint")}),
             is_of_host(torch.ops.aten.zeros.default, ([2],), {}),
             is_of_host(torch.ops.aten.zeros.default, ([2**25],), {})],
            torch.stack([host, host]).sum().item(), other.sum().item())
    """)
    assert found == [[True, False, False, True, False, True, False, True, False], 4.0, 1.0]


def test_a_mask_of_the_host_that_known_places_of_the_device_write_is_known(said):
    """As lightly's mask of a gathered batch: of 3 rows of 6, all but one element each."""
    assert said("""
        rows, mask = torch.arange(3, device="cuda"), torch.zeros(3, 6, dtype=torch.bool)
        mask[(rows, rows + 3)] = True
        places, unknown = torch.zeros(4, dtype=torch.int64), torch.rand(4, device="cuda")
        places.copy_(rows.new_tensor([7, 8, 9, 10]))
        other = torch.zeros(4)
        other.copy_(unknown)
        say(list(torch.ones(3, 6, device="cuda")[~mask].shape), mask.nonzero().tolist(),
            places.tolist(), other.tolist())
    """) == [[15], [[0, 3], [1, 4], [2, 5]], [7, 8, 9, 10], [1.0] * 4]


def test_tensors_of_the_device_become_numbers_of_an_old_type_of_tensor(said):
    """DDP's quantization hook has its scale so: ``torch.FloatTensor([scale, zero])``."""
    assert said("""
        known, unknown = torch.full((2,), 3.0, device="cuda"), torch.rand(2, device="cuda")
        say(torch.FloatTensor([known[0], unknown[1]]).tolist(), torch.Tensor([unknown[0]]).tolist())
    """) == [[3.0, 1.0], [1.0]]
