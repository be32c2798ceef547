"""Python objects that ranks send to each other; what each has got is in RANK.json of a folder."""

import json
import os
import sys

import torch
import torch.distributed as dist

folder, device = sys.argv[1:]
dist.init_process_group("gloo" if device == "cpu" else "nccl")
rank, world = dist.get_rank(), dist.get_world_size()
said = []
config = [{"lr": 0.5, "layers": 3}, "run"] if rank == 0 else [None, None]
dist.broadcast_object_list(config, src=0)
said.append(config)
late = [rank * 10] if rank == 2 else [None]
dist.broadcast_object_list(late, src=2)
said.append(late)
own = [None]
dist.scatter_object_list(own, [f"part {n}" for n in range(world)] if rank == 1 else None, src=1)
said.append(own)
every = [None] * world
dist.all_gather_object(every, {"rank": rank, "half": rank / 2, "name": "x"})
said.append(every)
got = [None] * world if rank == 0 else None
dist.gather_object(("at", rank + 1), got, dst=0)
said.append(got)
pair = dist.new_subgroups(2)[0]
both = [f"lead {rank}"] if rank % 2 == 0 else [None]
dist.broadcast_object_list(both, group=pair, group_src=0)
said.append(both)
note = [None]
if rank == 0:
    dist.send_object_list(["hello", 7], dst=3)
if rank == 3:
    note = [None, None]
    dist.recv_object_list(note, src=0)
said.append(note)
with open(f"{folder}/{int(os.environ['RANK'])}.json", "w") as file:
    json.dump(said, file)
layers = [torch.nn.Linear(8, 8) for _ in range(config[0]["layers"])]
model = torch.nn.Sequential(*layers).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=config[0]["lr"])
for _ in range(4):
    model(torch.ones(4, 8, device=device)).sum().backward()
    optimizer.step()
