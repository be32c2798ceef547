"""Hosts of the cluster that a program sees."""

from __future__ import annotations

import pytest

from flint.errors import UsageError
from flint.launching.program import Program, cluster_of


@pytest.mark.parametrize(
    ("device", "per_node", "hosts"),
    [(None, None, 64), ("h100-sxm", None, 64), ("gb200", None, 128), ("tpu-v5p", None, 128),
     ("tpu-v5p", 8, 64)],
)  # fmt: skip
def test_a_host_has_as_many_devices_as_machines_of_its_kind(device, per_node, hosts):
    program = Program(target="train.py")
    found = cluster_of(program, world=512, per_node=per_node, hosts=None, device=device, slices=1)
    assert found.hosts == hosts


@pytest.mark.parametrize(
    ("world", "said"),
    [(2**24 + 8, "--world 16,777,224: the limit is 16,777,216"), (9, "9 ranks do not fill whole")],
)
def test_a_world_that_cannot_be_is_refused_before_the_program_starts(world, said):
    own = {"per_node": None, "hosts": None, "device": None, "slices": 1}
    with pytest.raises(UsageError, match=said):
        cluster_of(Program(target="train.py"), world=world, **own)
