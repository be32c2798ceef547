"""Trainings whose tensors have sizes that values decide: python sizes_by_values.py WAY, as a rank.

masked    only words that a loader has masked go through the head of a model of language
experts   tokens go to experts by counts that ranks exchange; every expert has as many
boxes     boxes of a loader are matched to anchors, a buffer that DDP broadcasts, by their ratios
"""

import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler

on_gpu = torch.cuda.is_available()
device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if on_gpu else torch.device("cpu")
dist.init_process_group("nccl" if on_gpu else "gloo")
rank, world = dist.get_rank(), dist.get_world_size()
WORDS, MASK, IGNORED, WIDTH = 50, 4, -100, 16


class Sentences(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, at):
        chosen = torch.Generator().manual_seed(at)
        words = torch.randint(MASK + 1, WORDS, (16,), generator=chosen)
        masked = torch.rand(16, generator=chosen) < 0.2
        masked[0] = True
        return words.masked_fill(masked, MASK), words.masked_fill(~masked, IGNORED)


class MaskedLanguageModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.head = nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, WORDS)
        self.mix, self.change = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, words, labels):
        x = self.words(words)
        x = torch.relu(self.mix(x + x.mean(1, keepdim=True)))
        asked = labels != IGNORED
        at = torch.nonzero(labels.flatten() != IGNORED).squeeze(1)
        logits = self.head(torch.relu(self.change(x[asked])))
        return (
            cross_entropy(logits, labels.flatten()[at]) + x.masked_select(asked[..., None]).mean()
        )


def masked():
    model = DDP(MaskedLanguageModel().to(device))
    optimizer = torch.optim.AdamW(model.parameters())
    data = Sentences()
    for words, labels in DataLoader(data, 4, sampler=DistributedSampler(data), drop_last=True):
        optimizer.zero_grad()
        model(words.to(device), labels.to(device)).backward()
        optimizer.step()


class Exchange(torch.autograd.Function):
    """Rows to other ranks and from them, so many each; gradients travel back."""

    @staticmethod
    def forward(ctx, rows, got, sent):
        ctx.sizes = sent, got
        found = rows.new_empty(sum(got), *rows.shape[1:])
        dist.all_to_all_single(found, rows.contiguous(), got, sent)
        return found

    @staticmethod
    def backward(ctx, grad):
        return Exchange.apply(grad, *ctx.sizes), None, None


def experts():
    own, chosen = 2, 2
    count = own * world
    gate = nn.Linear(WIDTH, count).to(device)
    kinds = nn.ModuleList(
        nn.Sequential(nn.Linear(WIDTH, 32), nn.SiLU(), nn.Linear(32, WIDTH)) for _ in range(own)
    ).to(device)
    optimizer = torch.optim.AdamW([*gate.parameters(), *kinds.parameters()])
    for _ in range(5):
        x = torch.randn(8 * count, WIDTH).to(device)
        scores = gate(x).softmax(-1)
        # Spread evenly, as programs do for benchmarks.
        choices = torch.arange(len(x) * chosen, device=device) % count
        order = choices.argsort(stable=True)
        counts = torch.bincount(choices, minlength=count)
        arriving = torch.empty_like(counts)
        dist.all_to_all_single(arriving, counts)
        sent, got = (item.view(world, -1).sum(1).tolist() for item in (counts, arriving))
        rows = Exchange.apply(x[order // chosen], got, sent)
        # From the order of ranks to that of experts, and back.
        kind = torch.arange(own, device=device).repeat(world).repeat_interleave(arriving)
        places = kind.argsort(stable=True)
        parts = rows[places].split(arriving.view(world, -1).sum(0).tolist())
        made = torch.cat([each(part) for each, part in zip(kinds, parts, strict=True)])
        back = torch.empty_like(made).index_copy(0, places, made)
        weight = scores.gather(1, choices.view(-1, chosen)).flatten()[order, None]
        out = x.index_add(0, order // chosen, Exchange.apply(back, sent, got) * weight)
        out.square().mean().backward()
        for item in gate.parameters():
            dist.all_reduce(item.grad)
        optimizer.step()
        optimizer.zero_grad()


class Pictures(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, at):
        drawn = torch.Generator().manual_seed(at)
        boxes = torch.rand(1 + at % 5, 4, generator=drawn)
        return torch.rand(3, 16, 16, generator=drawn), boxes


def batched(items):
    pictures, boxes = zip(*items, strict=True)
    numbered = [torch.cat([torch.full((len(x), 1), float(i)), x], 1) for i, x in enumerate(boxes)]
    return torch.stack(pictures), torch.cat(numbered)


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.features, self.norm = nn.Conv2d(3, WIDTH, 4, stride=4), nn.BatchNorm2d(WIDTH)
        self.head = nn.Linear(WIDTH, 4)
        self.register_buffer("anchors", torch.tensor([[1.0, 1.0], [2.0, 3.0], [3.0, 1.5]]) / 4)

    def forward(self, pictures, boxes):
        x = self.norm(self.features(pictures))
        width = x.shape[-1]
        gain = torch.ones(5, device=x.device)
        gain[1:] = torch.tensor([x.shape[3], x.shape[2]] * 2, device=x.device)
        ratio = boxes[:, None, 3:] / self.anchors
        fits = torch.max(ratio, 1 / ratio).amax(2) < 3
        boxes = (boxes * gain)[:, None].repeat(1, len(self.anchors), 1)[fits]
        at, place = boxes[:, 0].long(), boxes[:, 1:3].long().clamp(max=width - 1)
        return (self.head(x[at, :, place[:, 1], place[:, 0]]) - boxes[:, 1:]).square().mean()


def boxes():
    model = DDP(Detector().to(device))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    data = Pictures()
    chosen = DistributedSampler(data)
    for pictures, targets in DataLoader(data, 4, sampler=chosen, collate_fn=batched):
        optimizer.zero_grad()
        model(pictures.to(device), targets.to(device)).backward()
        optimizer.step()


{"masked": masked, "experts": experts, "boxes": boxes}[sys.argv[1]]()
dist.destroy_process_group()
