"""Text generation: a Llama of about 3B parameters in bfloat16 writes one token after another, with a static cache."""

import argparse
import time

import torch
import torch.nn.functional as F
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=64)
parser.add_argument("--tiny", action="store_true")
parser.add_argument("--batch", type=int, default=64)
parser.add_argument("--length", type=int, default=2048)
parser.add_argument("--layers", type=int, default=26)
parser.add_argument("--width", type=int, default=3072)
parser.add_argument("--inner", type=int, default=8192)
args = parser.parse_args()
if args.tiny:
    args.batch, args.length, args.layers, args.width, args.inner = 2, 64, 2, 256, 256
device = "cuda" if torch.cuda.is_available() else "cpu"
SIZE, KV, VOCABULARY = 128, 8 if not args.tiny else 1, 128256 if not args.tiny else 512
HEADS = args.width // SIZE


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(args.width), nn.RMSNorm(args.width)
        self.q = nn.Linear(args.width, HEADS * SIZE, bias=False)
        self.kv = nn.Linear(args.width, 2 * KV * SIZE, bias=False)
        self.o = nn.Linear(HEADS * SIZE, args.width, bias=False)
        self.gate_up = nn.Linear(args.width, 2 * args.inner, bias=False)
        self.down = nn.Linear(args.inner, args.width, bias=False)
        self.register_buffer("keys", torch.zeros(args.batch, KV, args.length, SIZE))
        self.register_buffer("values", torch.zeros(args.batch, KV, args.length, SIZE))

    def forward(self, x, cos, sin, at, mask):
        b = x.shape[0]
        y = self.norm1(x)
        q = self.q(y).view(b, 1, HEADS, SIZE).transpose(1, 2)
        k, v = self.kv(y).view(b, 1, 2 * KV, SIZE).transpose(1, 2).chunk(2, dim=1)
        q, k = (z * cos + torch.cat((-z[..., 64:], z[..., :64]), -1) * sin for z in (q, k))
        self.keys.index_copy_(2, at, k)
        self.values.index_copy_(2, at, v)
        y = F.scaled_dot_product_attention(
            q, self.keys, self.values, attn_mask=mask, enable_gqa=True
        )
        x = x + self.o(y.transpose(1, 2).reshape(b, 1, -1))
        gate, up = self.gate_up(self.norm2(x)).chunk(2, dim=-1)
        return x + self.down(F.silu(gate) * up)


class Llama(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, args.width)
        self.blocks = nn.ModuleList(Block() for _ in range(args.layers))
        self.norm = nn.RMSNorm(args.width)
        self.head = nn.Linear(args.width, VOCABULARY, bias=False)
        angles = torch.outer(torch.arange(args.length), 5e5 ** (-torch.arange(0, SIZE, 2) / SIZE))
        angles = torch.cat((angles, angles), dim=-1)
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())
        self.register_buffer("places", torch.arange(args.length), persistent=False)

    def forward(self, tokens, at):
        x = self.tokens(tokens)
        cos, sin = self.cos[at], self.sin[at]
        mask = (self.places <= at)[None, None, None].expand(tokens.shape[0], 1, 1, -1)
        for block in self.blocks:
            x = block(x, cos, sin, at, mask)
        return self.head(self.norm(x))[:, -1].argmax(-1, keepdim=True)


torch.manual_seed(0)
with torch.device(device):
    model = Llama().to(torch.bfloat16).eval()
    model.places = torch.arange(args.length)
    tokens = torch.randint(0, VOCABULARY, (args.batch, 1))
    at = torch.tensor([args.length // 2])
with torch.inference_mode():
    for step in range(args.steps):
        if step == args.steps // 2:
            if device == "cuda":
                torch.cuda.synchronize()
            begun = time.perf_counter()
        tokens = model(tokens, at)
        at = at + 1
if device == "cuda":
    torch.cuda.synchronize()
seconds = (time.perf_counter() - begun) / (args.steps - args.steps // 2)
print(f"seconds a token: {seconds}")
