"""What the tests of PyTorch captures leave to be tidied up."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.frontends.torch import executing


@pytest.fixture(scope="session", autouse=True)
def no_process_left() -> Iterator[None]:
    """The process that runs modules ends before a test worker that is in a hurry is killed."""
    yield
    if executing.worker.cache_info().currsize:
        executing.worker().shutdown(cancel_futures=True)


@pytest.fixture(scope="session", autouse=True)
def no_threads_of_autograd() -> None:
    """A torch that is built for CUDA counts a device as soon as a process has fake tensors, and a
    backward pass then starts a thread for it, after which forks of the process can run none: tests
    with fake tensors of their own would break the captures after them.
    """
    torch = pytest.importorskip("torch")
    if torch.version.cuda is not None:
        counting = torch._C._ensureCUDADeviceGuardSet
        torch._C._ensureCUDADeviceGuardSet = lambda: None
        os.register_at_fork(
            after_in_child=lambda: setattr(torch._C, "_ensureCUDADeviceGuardSet", counting)
        )
