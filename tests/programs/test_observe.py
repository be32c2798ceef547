"""The observer of real runs: no communication passes it unseen, and messages have their partners."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")
import torch.distributed as dist  # noqa: E402

from tests.programs import observe  # noqa: E402

#: Ops of these namespaces that only real GPUs have, or that programs do not call.
ELSEWHERE = {"monitored_barrier_", "isend", "irecv", "batch_p2p_ops"}


def test_every_communication_of_pytorch_has_a_row():
    schemas = (schema.name.split("::") for schema in torch._C._jit_get_all_schemas())
    names = {name for namespace, name in schemas if namespace in observe.NAMESPACES}
    assert names - {*observe.KINDS, *observe.SILENT} == ELSEWHERE


def test_a_communication_without_a_row_is_named():
    observer = observe.Observer(None)
    observer.see(SimpleNamespace(namespace="c10d", _opname="monitored_barrier_"), ())
    assert observer.unknown == {"c10d.monitored_barrier_"}


@pytest.mark.parametrize(
    ("name", "rank", "expected"),
    # 3 floats from each of the ranks 4, 5 and 6 to the second of them, or from it to each.
    [
        ("gather", 4, [("to 5", 12)]),
        ("gather", 5, [("from 4", 12), ("from 6", 12)]),
        ("scatter", 4, [("from 5", 12)]),
        ("scatter", 5, [("to 4", 12), ("to 6", 12)]),
    ],
)
def test_gathers_and_scatters_are_messages_of_the_root(monkeypatch, name, rank, expected):
    monkeypatch.setattr(dist, "get_rank", lambda: rank)
    one, many = [torch.zeros(3)], [[torch.zeros(3)] * 3] if rank == 5 else []
    given = (many, one) if name == "gather" else (one, many)
    found = observe.messages_of(name, (*given, None, 1), 3, [4, 5, 6])
    assert list(found) == expected
