"""The stand-in for deep_ep on real processes; see ``test_expert_exchange.py``.

python -m tests.frontends.torch.programs.expert_processes FOLDER     # writes FOLDER/result.json
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from flint.frontends.torch.programs.expert_exchange import Buffer

RANKS, EXPERTS, TOKENS, CHOSEN, WIDTH = 4, 8, 40, 3, 5


def work(rank, folder):
    torch.set_num_threads(1)
    store = dist.FileStore(f"{folder}/store", RANKS)
    dist.init_process_group("gloo", rank=rank, world_size=RANKS, store=store)
    generator = torch.Generator().manual_seed(rank)
    x = torch.randn(TOKENS, WIDTH, generator=generator)
    weights, choices = torch.rand(TOKENS, EXPERTS, generator=generator).topk(CHOSEN)
    scale = torch.arange(1.0, EXPERTS + 1)  # what an expert multiplies its rows by

    buffer = Buffer(dist.group.WORLD)
    counts, _, of_experts, goes, _ = buffer.get_dispatch_layout(choices, EXPERTS)
    rows, local, shares, each, handle, _ = buffer.dispatch(
        x, num_tokens_per_rank=counts, is_token_in_rank=goes, num_tokens_per_expert=of_experts,
        topk_idx=choices, topk_weights=weights,
    )  # fmt: skip
    own = scale.chunk(RANKS)[rank]
    factors = torch.where(local >= 0, own[local.clamp(min=0)] * shares, 0.0).sum(1)
    made, back, _ = buffer.combine(rows * factors[:, None], handle, topk_weights=shares)
    again = buffer.dispatch(x, handle=handle)[0]

    expected = x * (scale[choices] * weights).sum(1, keepdim=True)
    held = [int((local == expert).sum()) for expert in range(len(own))]
    found = {
        "made": float((made - expected).abs().max()),
        "weights": float((back - weights).abs().max()),
        "counted": each == held,
        "once": len(rows) == int(dist_sum(goes)[rank]),
        "same": bool(torch.equal(again, rows)),
    }
    everyone = [None] * RANKS
    dist.all_gather_object(everyone, found)
    if rank == 0:
        (Path(folder) / "result.json").write_text(json.dumps(everyone))
    dist.destroy_process_group()


def dist_sum(goes):
    """Tokens of all ranks that go to each rank."""
    total = goes.long().sum(0)
    dist.all_reduce(total)
    return total


if __name__ == "__main__":
    mp.start_processes(work, (sys.argv[1],), RANKS, start_method="fork")
