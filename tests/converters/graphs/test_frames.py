"""Tables of nodes and communications as DataFrames."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from flint.errors import UsageError
from flint.workload.inspection import summarise
from flint.workload.workload import Workload

Saved = Callable[..., Workload]


def test_the_nodes_frame_adds_up_to_the_summary(saved: Saved) -> None:
    workload = saved("llama_tiny_scan_fsdp4_tp2")
    frame = workload.nodes_frame()
    [program] = summarise(workload).programs
    assert int((frame.flops * frame.times).sum()) == program.flops
    plain = frame[frame.kind.isin(["compute", "communication"])]
    assert int(plain.times.sum()) == program.nodes
    assert len(frame) == program.stored_nodes
    assert frame.index.is_unique


def test_a_row_says_what_its_node_is(loop: Workload) -> None:
    frame = loop.nodes_frame()
    [dot] = frame[frame.op == "dot_general"].itertuples()
    assert (dot.times, dot.level, dot.flops, dot.results) == (5, 1, 512, "4x8xf32")
    assert dot.Index == f"{dot.block}/{dot.Index.rpartition('/')[2]}"


def test_the_communications_frame_adds_up_to_the_summary(saved: Saved) -> None:
    workload = saved("llama3_8b_scan_fsdp64_tp8")
    frame = workload.communications_frame()
    frame["all_bytes"] = frame.operand_bytes * frame.times
    sums = frame.groupby("kind")[["times", "all_bytes"]].sum()
    for row in summarise(workload).programs[0].collectives_by_kind:
        assert tuple(sums.loc[row.kind]) == (row.count, row.operand_bytes)


def test_a_program_without_communication_has_an_empty_frame(saved: Saved) -> None:
    frame = saved("resnet_block_8x8").communications_frame()
    assert {"kind", "group", "times"} <= set(frame.columns)


def test_without_pandas_the_error_says_what_to_install(
    loop: Workload, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(UsageError, match=r"pip install 'flint-workload\[pandas\]'"):
        loop.nodes_frame()
