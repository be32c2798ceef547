"""A small GPT under DDP, as people write it: ranks from the environment, argparse, evaluation."""

import argparse
import math
import os
from contextlib import nullcontext

import numpy as np
import torch
import torch.nn as nn
from torch.distributed import destroy_process_group, init_process_group
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

parser = argparse.ArgumentParser()
parser.add_argument("--batch_size", type=int, default=2)
parser.add_argument("--block_size", type=int, default=32)
parser.add_argument("--n_layer", type=int, default=2)
parser.add_argument("--n_embd", type=int, default=64)
parser.add_argument("--n_head", type=int, default=4)
parser.add_argument("--vocab_size", type=int, default=128)
parser.add_argument("--accumulate", type=int, default=8)
parser.add_argument("--eval_iters", type=int, default=3)
parser.add_argument("--max_iters", type=int, default=5)
parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
parser.add_argument("--backend", default="nccl" if torch.cuda.is_available() else "gloo")
args = parser.parse_args()

ddp = int(os.environ.get("RANK", -1)) != -1
if ddp:
    init_process_group(backend=args.backend)
    ddp_rank = int(os.environ["RANK"])
    ddp_local_rank = int(os.environ["LOCAL_RANK"])
    ddp_world_size = int(os.environ["WORLD_SIZE"])
    device = f"cuda:{ddp_local_rank}" if args.device == "cuda" else args.device
    if args.device == "cuda":
        torch.cuda.set_device(device)
    master_process = ddp_rank == 0
    seed_offset = ddp_rank
    assert args.accumulate % ddp_world_size == 0
    args.accumulate //= ddp_world_size
else:
    device, master_process, seed_offset, ddp_world_size = args.device, True, 0, 1
torch.manual_seed(1337 + seed_offset)
device_type = "cuda" if "cuda" in device else "cpu"
ctx = (
    nullcontext()
    if device_type == "cpu"
    else torch.amp.autocast(device_type=device_type, dtype=torch.bfloat16)
)

data = np.random.randint(0, 128, 10000).astype(np.uint16)


def get_batch(split):
    ix = torch.randint(len(data) - args.block_size, (args.batch_size,))
    x = torch.stack(
        [torch.from_numpy((data[i : i + args.block_size]).astype(np.int64)) for i in ix]
    )
    y = torch.stack(
        [torch.from_numpy((data[i + 1 : i + 1 + args.block_size]).astype(np.int64)) for i in ix]
    )
    if device_type == "cuda":
        x, y = (
            x.pin_memory().to(device, non_blocking=True),
            y.pin_memory().to(device, non_blocking=True),
        )
    else:
        x, y = x.to(device), y.to(device)
    return x, y


class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.c_attn, self.c_proj = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.fc, self.proj = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

    def forward(self, x):
        B, T, C = x.size()
        q, k, v = self.c_attn(self.ln_1(x)).split(C, dim=2)
        q, k, v = (t.view(B, T, args.n_head, C // args.n_head).transpose(1, 2) for t in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.c_proj(y.transpose(1, 2).contiguous().view(B, T, C))
        return x + self.proj(F.gelu(self.fc(self.ln_2(x))))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe = (
            nn.Embedding(args.vocab_size, args.n_embd),
            nn.Embedding(args.block_size, args.n_embd),
        )
        self.h = nn.ModuleList([Block(args.n_embd) for _ in range(args.n_layer)])
        self.ln_f = nn.LayerNorm(args.n_embd)
        self.lm_head = nn.Linear(args.n_embd, args.vocab_size, bias=False)
        self.wte.weight = self.lm_head.weight
        self.apply(self._init)
        for pn, p in self.named_parameters():
            if pn.endswith("proj.weight"):
                torch.nn.init.normal_(p, mean=0.0, std=0.02 / math.sqrt(2 * args.n_layer))
        print(f"number of parameters: {sum(p.numel() for p in self.parameters())}")

    def _init(self, m):
        if isinstance(m, (nn.Linear, nn.Embedding)):
            torch.nn.init.normal_(m.weight, mean=0.0, std=0.02)

    def forward(self, idx, targets):
        pos = torch.arange(0, idx.size(1), dtype=torch.long, device=idx.device)
        x = self.wte(idx) + self.wpe(pos)
        for block in self.h:
            x = block(x)
        logits = self.lm_head(self.ln_f(x))
        return logits, F.cross_entropy(
            logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1
        )


model = GPT()
model.to(device)
scaler = torch.amp.GradScaler(device_type, enabled=False)
decay = [p for p in model.parameters() if p.dim() >= 2]
rest = [p for p in model.parameters() if p.dim() < 2]
optimizer = torch.optim.AdamW(
    [{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}],
    lr=1e-3,
    betas=(0.9, 0.95),
    fused=device_type == "cuda",
)
if ddp:
    model = DDP(model, device_ids=[ddp_local_rank] if device_type == "cuda" else None)


@torch.no_grad()
def estimate_loss():
    out = {}
    model.eval()
    for split in ["train", "val"]:
        losses = torch.zeros(args.eval_iters)
        for k in range(args.eval_iters):
            X, Y = get_batch(split)
            with ctx:
                _logits, loss = model(X, Y)
            losses[k] = loss.item()
        out[split] = losses.mean()
    model.train()
    return out


X, Y = get_batch("train")
iter_num, best = 0, 1e9
raw_model = model.module if ddp else model
while True:
    lr = 1e-3 * (iter_num + 1) / 10
    for group in optimizer.param_groups:
        group["lr"] = lr
    if iter_num % 2000 == 0 and master_process:
        losses = estimate_loss()
        print(f"step {iter_num}: train loss {losses['train']:.4f}, val loss {losses['val']:.4f}")
        if losses["val"] < best and iter_num > 0:
            torch.save({"model": raw_model.state_dict()}, "ckpt.pt")
    for micro_step in range(args.accumulate):
        if ddp:
            model.require_backward_grad_sync = micro_step == args.accumulate - 1
        with ctx:
            logits, loss = model(X, Y)
            loss = loss / args.accumulate
        X, Y = get_batch("train")
        scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad(set_to_none=True)
    if iter_num % 10 == 0 and master_process:
        print(f"iter {iter_num}: loss {loss.item() * args.accumulate:.4f}")
    iter_num += 1
    if iter_num > args.max_iters:
        break
if ddp:
    destroy_process_group()
