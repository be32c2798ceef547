"""What is found among a step's arguments."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from flint.frontends.torch.recording.naming import roots  # noqa: E402


class Odd:
    """Raises for every attribute that it has not, as ``pytest.mark`` does."""

    def __init__(self):
        self.model = torch.nn.Linear(2, 2)

    def __getattr__(self, name):
        raise ValueError(name)


def test_an_object_is_asked_for_no_attribute_that_it_may_not_have():
    odd = Odd()
    assert list(roots({"odd": [odd]})) == [("odd[0].model", odd.model)]
