"""Ways to train that programs have, one of them by name: python many_ways.py WAY, as a rank."""

import itertools
import os
import sys
from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy, mse_loss, normalize
from torch.nn.parallel import DistributedDataParallel as DDP

on_gpu = torch.cuda.is_available()
device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if on_gpu else torch.device("cpu")
dist.init_process_group("nccl" if on_gpu else "gloo")
rank, world = dist.get_rank(), dist.get_world_size()
STEPS = 5


def layers(*widths):
    made = []
    for before, after in itertools.pairwise(widths):
        made += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*made[:-1]).to(device)


def lbfgs(search=None):
    """No tolerance ends it, so that it really has as many closures as it may."""
    torch.manual_seed(0)
    model = layers(8, 32, 1)
    free = {} if on_gpu else {"tolerance_change": -1, "tolerance_grad": -1}
    optimizer = torch.optim.LBFGS(
        model.parameters(), lr=0.5, max_iter=4, history_size=3, line_search_fn=search, **free
    )
    x = torch.randn(64, 8).to(device)

    def closure():
        optimizer.zero_grad()
        loss = mse_loss(model(x), x.sum(1, keepdim=True).sin())
        loss.backward()
        for weight in model.parameters():
            dist.all_reduce(weight.grad)
            weight.grad /= world
        return loss

    for _ in range(STEPS):
        print(float(optimizer.step(closure)))


def packed():
    """Sentences of different lengths, sorted by PyTorch, through an LSTM and back."""
    from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

    class Tagger(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.tags = nn.Embedding(50, 12), nn.Linear(32, 5)
            self.lstm = nn.LSTM(12, 16, 2, batch_first=True, bidirectional=True)

        def forward(self, words, lengths):
            rows = pack_padded_sequence(
                self.words(words), lengths, batch_first=True, enforce_sorted=False
            )
            found, lengths = pad_packed_sequence(self.lstm(rows)[0], batch_first=True)
            assert found.shape[1] == max(lengths.tolist())
            return self.tags(found)

    model = DDP(Tagger().to(device))
    optimizer = torch.optim.Adam(model.parameters())
    lengths = torch.tensor([3, 7, 5, 5])
    for _ in range(STEPS):
        words = torch.randint(50, (4, 7))
        loss = cross_entropy(
            model(words.to(device), lengths).flatten(0, 1), words.flatten().to(device) % 5
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


class Gathered(torch.autograd.Function):
    """Embeddings of all ranks, with gradients, as programs for SimCLR write it."""

    @staticmethod
    def forward(ctx, x):
        every = [torch.zeros_like(x) for _ in range(world)]
        dist.all_gather(every, x)
        return tuple(every)

    @staticmethod
    def backward(ctx, *grads):
        total = torch.stack(grads)
        dist.all_reduce(total)
        return total[rank]


def contrastive():
    """SimCLR: two views of each image, negatives from every rank."""
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 12),
    )  # fmt: skip
    model = DDP(model.to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for _ in range(STEPS):
        views = torch.randn(2 * 6, 3, 16, 16).to(device)
        found = normalize(model(views), dim=1)
        first, second = (torch.cat(Gathered.apply(part.contiguous())) for part in found.chunk(2))
        every = torch.cat([first, second])
        logits = every @ every.T / 0.1
        logits = logits.masked_fill(torch.eye(len(every), dtype=torch.bool, device=device), -1e9)
        half = len(every) // 2
        target = torch.arange(len(every), device=device).roll(half)
        loss = cross_entropy(logits, target)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()


def critics():
    """A Wasserstein GAN: five rounds of the critic with a gradient of a gradient, a copy of averages."""
    import copy

    maker, critic = DDP(layers(8, 32, 16)), DDP(layers(16, 32, 1))
    averages = copy.deepcopy(maker.module).requires_grad_(False)
    first = torch.optim.Adam(maker.parameters(), 1e-4)
    second = torch.optim.Adam(critic.parameters(), 1e-4)

    def improve():
        real, noise = torch.randn(10, 16).to(device), torch.randn(10, 8, device=device)
        with torch.no_grad():
            made = maker(noise)
        share = torch.rand(10, 1, device=device)
        mixed = (share * real + (1 - share) * made).requires_grad_()
        [slope] = torch.autograd.grad(critic.module(mixed).sum(), mixed, create_graph=True)
        loss = (
            critic(made).mean() - critic(real).mean() + 10 * ((slope.norm(dim=1) - 1) ** 2).mean()
        )
        second.zero_grad()
        loss.backward()
        second.step()

    def batch():
        for _ in range(5):
            improve()
        first.zero_grad()
        (-critic(maker(torch.randn(10, 8, device=device))).mean()).backward()
        first.step()
        with torch.no_grad():
            for mean, now in zip(averages.parameters(), maker.module.parameters(), strict=True):
                mean.lerp_(now, 0.01)

    for _ in range(STEPS):
        batch()


def sharded_optimizer():
    """ZeRO-1 of PyTorch with accumulation, clipping and a schedule."""
    from torch.distributed.optim import ZeroRedundancyOptimizer

    model = DDP(layers(16, 64, 64, 4))
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=1e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    for _ in range(STEPS):
        for part in range(3):
            with model.no_sync() if part < 2 else nullcontext():
                (model(torch.randn(6, 16).to(device)).square().mean() / 3).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()


def uneven():
    """Join: every rank could have another number of batches."""
    from torch.distributed.algorithms.join import Join

    model = DDP(layers(16, 32, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with Join([model]):
        for _ in range(STEPS + rank):
            optimizer.zero_grad()
            model(torch.randn(6, 16).to(device)).sum().backward()
            optimizer.step()


def tensor_parallel():
    """Sequence parallelism, and a loss over logits that stay cut along the vocabulary."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor import parallel as tp

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.up, self.down = nn.LayerNorm(16), nn.Linear(16, 64), nn.Linear(64, 16)

        def forward(self, x):
            return x + self.down(torch.relu(self.up(self.norm(x))))

    mesh = init_device_mesh(device.type, (world,))
    model = nn.Sequential(
        nn.Embedding(40, 16), Block(), Block(), nn.LayerNorm(16), nn.Linear(16, 40)
    )
    block = {"norm": tp.SequenceParallel(), "up": tp.ColwiseParallel(input_layouts=Shard(1)),
             "down": tp.RowwiseParallel(output_layouts=Shard(1))}  # fmt: skip
    plan = {
        "0": tp.RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
        **{f"{at}.{name}": style for at in (1, 2) for name, style in block.items()},
        "3": tp.SequenceParallel(),
        "4": tp.ColwiseParallel(input_layouts=Shard(1), use_local_output=False),
    }
    model = tp.parallelize_module(model.to(device), mesh, plan)
    optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
    for _ in range(STEPS):
        words = torch.randint(40, (2, 8)).to(device)
        with tp.loss_parallel():
            loss = cross_entropy(model(words).flatten(0, 1), words.flatten())
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def denoise():
    """A small U-Net that learns noise, in half precision with a scaler; DDP sends float16."""
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook

    class UNet(nn.Module):
        def __init__(self):
            super().__init__()
            self.time = nn.Sequential(nn.Embedding(100, 16), nn.SiLU(), nn.Linear(16, 16))
            self.down, self.lower = nn.Conv2d(3, 8, 3, 1, 1), nn.Conv2d(8, 16, 3, 2, 1)
            self.mix = nn.MultiheadAttention(16, 2, batch_first=True)
            self.up, self.out = nn.ConvTranspose2d(16, 8, 2, 2), nn.Conv2d(16, 3, 3, 1, 1)

        def forward(self, x, t):
            high = torch.relu(self.down(x))
            low = torch.relu(self.lower(high)) + self.time(t)[:, :, None, None]
            rows = low.flatten(2).transpose(1, 2)
            low = low + self.mix(rows, rows, rows)[0].transpose(1, 2).view_as(low)
            return self.out(torch.cat([high, self.up(low)], 1))

    model = DDP(UNet().to(device))
    model.register_comm_hook(None, fp16_compress_hook)
    optimizer = torch.optim.AdamW(model.parameters())
    scaler = torch.amp.GradScaler(device.type, enabled=on_gpu)
    kept = torch.linspace(0.99, 0.01, 100).to(device)
    for at in range(STEPS):
        images = torch.randn(4, 3, 8, 8).to(device)
        t = torch.randint(0, 100, (4,), device=device)
        noise = torch.randn_like(images)
        share = kept[t][:, None, None, None]
        loss = mse_loss(model(share.sqrt() * images + (1 - share).sqrt() * noise, t), noise)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        if rank == 0 and at % 2 == 0:
            print(at, loss.item())


def experts():
    """A mixture of experts, one on each rank, with equal shares; all-to-all with gradients."""
    from torch.distributed.nn.functional import all_to_all_single

    router, expert, head = layers(16, world), layers(16, 32, 16), layers(16, 4)
    shared = [*router.parameters(), *head.parameters()]
    optimizer = torch.optim.Adam([*shared, *expert.parameters()])
    for _ in range(STEPS):
        x = torch.randn(8 * world, 16).to(device)
        gates = router(x).softmax(-1)
        order = gates.max(-1).values.argsort(descending=True)
        sent = x[order].contiguous()
        got = all_to_all_single(torch.empty_like(sent), sent)
        back = all_to_all_single(torch.empty_like(got), expert(got))
        x = x.index_add(0, order, back * gates[order].max(-1, keepdim=True).values)
        head(x).square().mean().backward()
        for weight in shared:
            dist.all_reduce(weight.grad, op=dist.ReduceOp.AVG if on_gpu else dist.ReduceOp.SUM)
        optimizer.step()
        optimizer.zero_grad()


WAYS = [
    lbfgs, packed, contrastive, critics, sharded_optimizer, uneven, tensor_parallel, denoise, experts,
]  # fmt: skip

if __name__ == "__main__":
    {way.__name__: way for way in WAYS}[sys.argv[1]](*sys.argv[2:])
    dist.destroy_process_group()
