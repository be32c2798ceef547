"""The variables that launchers set, from which a process knows its rank.

environment(rank=9, world_size=16, per_host=8)["LOCAL_RANK"]       # "1"
"""

from __future__ import annotations

#: Ranks per host, from which LOCAL_RANK follows.
LOCAL_WORLD_SIZE = 8
#: The variables that differ among ranks.
RANKS = ("RANK", "LOCAL_RANK", "GROUP_RANK", "ROLE_RANK")


def environment(rank: int, world_size: int, per_host: int = LOCAL_WORLD_SIZE) -> dict[str, str]:
    """The variables that torchrun sets for a rank.

    Args:
        rank, world_size: of the process.
        per_host: processes per host.
    """
    local = min(per_host, world_size)
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(world_size),
        "LOCAL_RANK": str(rank % local),
        "LOCAL_WORLD_SIZE": str(local),
        "GROUP_RANK": str(rank // local),
        "GROUP_WORLD_SIZE": str(-(-world_size // local)),
        "ROLE_RANK": str(rank),
        "ROLE_WORLD_SIZE": str(world_size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "29500",
        "TORCHELASTIC_RUN_ID": "flint",
    }
