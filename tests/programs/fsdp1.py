"""FSDP1 with an auto-wrap policy and a data loader with a distributed sampler."""

import functools
import os

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler
from transformer import Block, Transformer


class Tokens(Dataset):
    def __len__(self):
        return 256

    def __getitem__(self, at):
        generator = torch.Generator().manual_seed(at)
        return torch.randint(0, 96, (17,), generator=generator)


def setup():
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    cuda = torch.cuda.is_available()
    dist.init_process_group("nccl" if cuda else "gloo", rank=rank, world_size=world)
    if not cuda:
        return rank, world, torch.device("cpu")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    return rank, world, torch.device("cuda", torch.cuda.current_device())


def main():
    rank, world, device = setup()
    torch.manual_seed(0)
    sampler = DistributedSampler(Tokens(), num_replicas=world, rank=rank, shuffle=True)
    loader = DataLoader(
        Tokens(), batch_size=2, sampler=sampler, num_workers=2, pin_memory=device.type == "cuda"
    )
    policy = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={Block})
    model = FSDP(Transformer(), auto_wrap_policy=policy, device_id=device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for epoch in range(1):
        sampler.set_epoch(epoch)
        total = torch.zeros(2, device=device)
        for batch in loader:
            batch = batch.to(device)
            optimizer.zero_grad()
            logits = model(batch[:, :-1])
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
            loss.backward()
            optimizer.step()
            total[0] += loss.item()
            total[1] += len(batch)
        dist.all_reduce(total, op=dist.ReduceOp.SUM)
        if rank == 0:
            print(f"epoch {epoch}: loss {total[0] / total[1]:.3f}")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
