"""GPT-2 of 124M parameters in nanoGPT's style: bfloat16 autocast, AdamW, clipped gradients."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=30)
parser.add_argument("--tiny", action="store_true")
parser.add_argument("--compile", action="store_true")
parser.add_argument("--batch", type=int, default=16)
parser.add_argument("--length", type=int, default=1024)
parser.add_argument("--layers", type=int, default=12)
parser.add_argument("--width", type=int, default=768)
parser.add_argument("--heads", type=int, default=12)
parser.add_argument("--optimizer", choices=["fused", "foreach", "loop", "sgd"], default="fused")
args = parser.parse_args()
if args.tiny:
    args.batch, args.length, args.layers, args.width, args.heads = 2, 64, 2, 64, 2
device = "cuda" if torch.cuda.is_available() else "cpu"
VOCABULARY = 50304 if not args.tiny else 512


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width, bias=False), nn.LayerNorm(width, bias=False)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.up = nn.Linear(width, 4 * width, bias=False)
        self.down = nn.Linear(4 * width, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, t, d = x.shape
        q, k, v = self.qkv(self.norm1(x)).split(d, dim=2)
        q, k, v = (y.view(b, t, self.heads, d // self.heads).transpose(1, 2) for y in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).contiguous().view(b, t, d))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class GPT(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, args.width)
        self.positions = nn.Embedding(args.length, args.width)
        self.blocks = nn.ModuleList(Block(args.width, args.heads) for _ in range(args.layers))
        self.norm = nn.LayerNorm(args.width, bias=False)
        self.head = nn.Linear(args.width, VOCABULARY, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        at = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.tokens(tokens) + self.positions(at)
        for block in self.blocks:
            x = block(x)
        scores = self.head(self.norm(x))
        return F.cross_entropy(scores.view(-1, scores.shape[-1]), targets.view(-1))


torch.manual_seed(1337)
torch.backends.cuda.matmul.allow_tf32 = True
torch.backends.cudnn.allow_tf32 = True
model: nn.Module = GPT().to(device)
if args.optimizer == "sgd":
    optimizer: torch.optim.Optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)
else:
    choice = {"fused": {"fused": True}, "foreach": {"foreach": True}, "loop": {"foreach": False}}
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=6e-4, betas=(0.9, 0.95), **choice[args.optimizer]
    )
if args.compile:
    model = torch.compile(model)
data = torch.randint(0, VOCABULARY, (8, args.batch, args.length + 1))
for step in range(args.steps):
    batch = data[step % 8].to(device, non_blocking=True)
    with torch.autocast(device, torch.bfloat16):
        loss = model(batch[:, :-1], batch[:, 1:].contiguous())
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    if step % 10 == 0:
        print(step, loss.item())
