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
