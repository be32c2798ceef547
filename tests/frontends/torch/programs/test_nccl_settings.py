"""Settings of NCCL that programs make for their groups: streams, time limits, channels."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")


def test_groups_have_the_settings_of_nccl_that_a_program_makes(said):
    found = said("""
        import datetime, torch.distributed as dist
        dist.init_process_group("nccl")
        options = dist.ProcessGroupNCCL.Options(is_high_priority_stream=True)
        options._timeout = datetime.timedelta(minutes=1)
        options.config.max_ctas = 8
        names, given = ("dp", "tp"), {"dp": ("nccl", options), "tp": "gloo"}
        make = dist.init_device_mesh
        mesh = make("cuda", (8, 2), mesh_dim_names=names, backend_override=given)
        pair = dist.new_group([4, 5], pg_options=options)
        dist.distributed_c10d._set_pg_timeout(options._timeout, pair)
        sizes = [mesh["dp"].size(), dist.get_world_size(pair)]
        say(sizes, [dist.get_backend(mesh.get_group(name)) for name in names])
    """)
    assert found == [[8, 2], ["nccl", "gloo"]]
