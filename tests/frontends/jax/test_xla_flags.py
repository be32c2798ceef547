"""Flags for another XLA: left out, as the installed one would end the process."""

from __future__ import annotations

import os

from flint.frontends.jax.internals.xla_flags import drop_unknown


def test_flags_that_xla_does_not_know_are_left_out_and_told(monkeypatch):
    known = (
        "--xla_gpu_enable_latency_hiding_scheduler=true --xla_force_host_platform_device_count=4"
    )
    monkeypatch.setenv("XLA_FLAGS", f"{known} --xla_of_nobody=1 --xla_nor_of_us")
    [told] = drop_unknown()
    assert "--xla_of_nobody=1 --xla_nor_of_us" in told
    assert os.environ["XLA_FLAGS"] == known
    assert drop_unknown() == ()
