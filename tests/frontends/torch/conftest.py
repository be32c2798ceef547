"""What the tests of PyTorch captures leave to be tidied up."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.frontends.torch import executing


@pytest.fixture(scope="session", autouse=True)
def no_process_left() -> Iterator[None]:
    """The process that runs modules ends before a test worker that is in a hurry is killed."""
    yield
    if executing.worker.cache_info().currsize:
        executing.worker().shutdown(cancel_futures=True)
