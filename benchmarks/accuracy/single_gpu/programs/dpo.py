"""Preferences: a policy of about 0.5B parameters and its frozen reference, two answers each; bfloat16, AdamW."""

import argparse
import copy

import torch
import torch.nn.functional as F
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=30)
parser.add_argument("--tiny", action="store_true")
parser.add_argument("--batch", type=int, default=8)
parser.add_argument("--length", type=int, default=1024)
parser.add_argument("--layers", type=int, default=24)
parser.add_argument("--width", type=int, default=1024)
args = parser.parse_args()
vocabulary = 151936
if args.tiny:
    args.batch, args.length, args.layers, args.width, vocabulary = 2, 32, 2, 128, 512
device = "cuda" if torch.cuda.is_available() else "cpu"
SIZE = 64


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(width), nn.RMSNorm(width)
        self.q, self.kv = nn.Linear(width, width), nn.Linear(width, 4 * SIZE)
        self.o = nn.Linear(width, width, bias=False)
        self.gate, self.up = (nn.Linear(width, 11 * width // 4, bias=False) for _ in range(2))
        self.down = nn.Linear(11 * width // 4, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, t, d = x.shape
        y = self.norm1(x)
        q = self.q(y).view(b, t, -1, SIZE).transpose(1, 2)
        k, v = self.kv(y).view(b, t, 4, SIZE).transpose(1, 2).chunk(2, dim=1)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + self.o(y.transpose(1, 2).reshape(b, t, d))
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Policy(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(args.layers))
        self.norm, self.head = nn.RMSNorm(width), nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """The logarithm of the probability of each sequence."""
        x = self.tokens(tokens)
        for block in self.blocks:
            x = block(x)
        scores = self.head(self.norm(x))[:, :-1].float().log_softmax(-1)
        return scores.gather(-1, tokens[:, 1:, None]).squeeze(-1).sum(-1)


torch.manual_seed(0)
with torch.device(device):
    policy = Policy(args.width).to(torch.bfloat16)
    pairs = torch.randint(0, vocabulary, (2, args.batch, args.length))
reference = copy.deepcopy(policy).requires_grad_(False).eval()
optimizer = torch.optim.AdamW(policy.parameters(), lr=5e-7)
for step in range(args.steps):
    tokens = pairs[step % 2]
    with torch.no_grad():
        before = reference(tokens)
    chosen, rejected = (policy(tokens) - before).chunk(2)
    loss = -F.logsigmoid(0.1 * (chosen - rejected)).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 0:
        print(step, loss.item())
