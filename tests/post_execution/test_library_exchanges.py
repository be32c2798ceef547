"""Exchanges of kernel libraries, without NCCL or gloo: collectives where their shapes tell."""

from __future__ import annotations

from pathlib import Path

import pytest

from flint.post_execution.converting import convert_traces
from tests.post_execution.traces import Profile, exchanged

PROFILES = Path(__file__).parents[1] / "data" / "profiles"


def test_an_all_reduce_of_a_kernel_library_is_a_collective(tmp_path):
    """Symmetric memory's op inside of vLLM's: 8 x 4 bf16 numbers, once."""
    profile = Profile(0, 4)
    sizes = {"Input Dims": [[8, 4], []], "Input type": ["c10::BFloat16", ""]}
    profile.op("vllm::all_reduce", 0, 20, **sizes)
    inner = profile.op("symm_mem::multimem_all_reduce_", 1, 18, **sizes)
    profile.kernel(inner, 3, 30, 10, name="multimem_all_reduce_kernel<c10::BFloat16, 16>")
    workload = convert_traces([profile.write(tmp_path / "rank0.json")])
    assert exchanged(workload) == [("all_reduce", 4, 64)]
    assert workload.programs[0].graph.measured_by_node().tolist() == [10_000]


def test_collectives_in_memory_that_ranks_of_a_cpu_share_end_with_their_ops(tmp_path):
    """vLLM's on CPUs, as in a published profile (github.com/navchetna/Intel-BlueLens): an
    all-reduce in place and an all-gather of 8 x 4 bf16 numbers.  The next op waits for each: from
    the first op to the last are 3 * 10 us, the pauses of 2 us, and the later one's collectives.
    """
    paths = []
    for rank in (0, 1):
        groups = [{"pg_name": "0", "ranks": [0, 1]}, {"pg_name": "1", "ranks": [rank]}]
        profile = Profile(rank, 2, pg_config=groups)
        bf16 = "c10::BFloat16"
        one = {"Input Dims": [[], [8, 4]], "Input type": ["Scalar", bf16]}
        two = {"Input Dims": [[], [8, 4], [16, 4]], "Input type": ["Scalar", bf16, bf16]}
        begin = 0
        for name, sizes in [("_C::shm_allreduce", one), ("_C::shm_all_gather", two)]:
            profile.op("aten::mm", begin, 10)
            profile.op(name, begin + 12, 20, **sizes)
            begin += 34
        profile.op("aten::mm", begin, 10)
        paths.append(profile.write(tmp_path / f"rank{rank}.json"))
    workload = convert_traces(paths)
    assert exchanged(workload) == [("all_reduce", 2, 64), ("all_gather", 2, 64)]
    assert workload.simulate().figures.step_seconds == pytest.approx(78e-6)
    modelled = workload.simulate(communication="modelled").figures
    wanted = 3 * 10e-6 + 4 * 2e-6 + modelled.communication_seconds
    assert modelled.step_seconds == pytest.approx(wanted)
    alone = convert_traces(paths[:1])  # its only group of several ranks
    assert exchanged(alone) == [("all_reduce", 2, 64), ("all_gather", 2, 64)]


def test_kernels_of_libraries_that_exchange_by_themselves_are_counted():
    """DeepEP's: 12 + 8 + 4 + 4 + 4 + 4 in the training step."""
    workload = convert_traces([PROFILES / "deepseek_train.json.gz"])
    [count] = [n for text, n in workload.warnings.items() if "communicate on their own" in text]
    assert count == 36
