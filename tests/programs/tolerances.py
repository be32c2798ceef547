"""Trainings that end by a tolerance: each of the functions is one.

python tolerances.py difference        # as a rank of torchrun
"""

import os
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

on_gpu = torch.cuda.is_available()
device = f"cuda:{os.environ['LOCAL_RANK']}" if on_gpu else "cpu"
dist.init_process_group("nccl" if on_gpu else "gloo")
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(8, 4).to(device))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
x, y = torch.randn(16, 8).to(device), torch.randn(16, 4).to(device)


def loss_of():
    return (model(x) - y).square().mean()


def update(loss):
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def difference():
    before, loss = float("inf"), loss_of()
    while abs(before - loss.item()) > 1e-4:
        before = loss.item()
        update(loss)
        loss = loss_of()


def broken():
    before = None
    for _ in range(100):
        loss = loss_of()
        now = loss.item()
        if before is not None and abs(before - now) < 1e-4:
            break
        before = now
        update(loss)


def on_device():
    loss = loss_of()
    while loss > 0.5:
        update(loss)
        loss = loss_of()


def until_close():
    before = loss_of().detach()
    while True:
        update(loss_of())
        loss = loss_of().detach()
        if torch.allclose(before, loss, atol=1e-4):
            break
        before = loss


def patience():
    best, bad = float("inf"), 0
    while bad < 1:
        loss = loss_of()
        update(loss)
        if loss.item() < best - 1e-4:
            best = loss.item()
        else:
            bad += 1


def accuracy():
    share, loss = 0.0, loss_of()
    while share < 0.7:
        update(loss)
        loss = loss_of()
        share = (1 / (1 + loss.detach())).item()


def large():
    loss = 100 * loss_of()
    while loss.item() > 50.0:
        update(loss / 100)
        loss = 100 * loss_of()


def by_hand():
    """Without an optimizer: parts of a batch, too, repeat themselves."""
    before, now = float("inf"), 1e9
    while abs(before - now) > 1e-4:
        before, now = now, round_by_hand()


def round_by_hand():
    for part, wanted in zip(x.chunk(4), y.chunk(4), strict=True):
        loss = (model(part) - wanted).square().mean()
        loss.backward()
    with torch.no_grad():
        for weight in model.parameters():
            weight -= 0.05 * weight.grad
            weight.grad = None
    return loss.item()


globals()[sys.argv[1]]()
with torch.no_grad():
    for _ in range(3):
        model(x)
dist.destroy_process_group()
