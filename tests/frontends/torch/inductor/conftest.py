"""The order in which the profiled PyTorch asked for attention kernels: flash attention first."""

import pytest


@pytest.fixture(autouse=True)
def _flash_first(monkeypatch):
    monkeypatch.setenv("TORCH_CUDNN_SDPA_DEPRIORITIZED", "1")
