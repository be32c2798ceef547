"""Notes about tensors are found by the storage that they share, also where many have been noted."""

from __future__ import annotations

import time

import pytest

torch = pytest.importorskip("torch")

from flint.frontends.torch.by_tensor import ByTensor  # noqa: E402


def test_tensors_of_a_storage_are_found_until_they_are_forgotten_or_gone():
    whole, noted = torch.arange(8), ByTensor()
    parts = [whole[at:] for at in range(40)]
    other = torch.arange(8)
    for tensor in (*parts, other):
        noted[tensor] = 1
    noted[parts[3]] = 2
    assert sorted(map(id, noted.sharing(whole))) == sorted(map(id, parts))
    del noted[parts[0]], parts[1]
    left = [part for part in parts if part in noted]
    assert len(left) == 38 and sorted(map(id, noted.sharing(whole))) == sorted(map(id, left))
    assert [item is other for item in noted.sharing(other)] == [True]
    assert noted.sharing(torch.arange(3)) == []


def test_notes_of_other_storages_cost_nothing():
    noted, target = ByTensor(), torch.arange(4)
    many = torch.arange(1 << 15).unbind()
    for part in many:
        noted[part] = 1
    noted[target] = 1
    before = time.process_time()
    for _ in range(200):
        assert len(noted.sharing(target)) == 1
    assert time.process_time() - before < 1.0  # looking at each note takes 200 times 10 ms
