"""A language model of LSTM or GRU layers (cuDNN), float32, SGD with clipped gradients."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=30)
parser.add_argument("--tiny", action="store_true")
parser.add_argument("--cell", choices=["LSTM", "GRU"], default="LSTM")
parser.add_argument("--batch", type=int, default=128)
parser.add_argument("--length", type=int, default=128)
parser.add_argument("--width", type=int, default=1024)
parser.add_argument("--vocabulary", type=int, default=10000)
args = parser.parse_args()
if args.tiny:
    args.batch, args.length, args.width, args.vocabulary = 2, 8, 32, 100
device = "cuda" if torch.cuda.is_available() else "cpu"


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(args.vocabulary, args.width)
        self.drop = nn.Dropout(0.2)
        self.layers = getattr(nn, args.cell)(args.width, args.width, num_layers=2, dropout=0.2)
        self.head = nn.Linear(args.width, args.vocabulary)

    def forward(self, tokens, state):
        y, state = self.layers(self.drop(self.tokens(tokens)), state)
        return self.head(self.drop(y)), state


torch.manual_seed(0)
model = Model().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
data = torch.randint(0, args.vocabulary, (8, args.length + 1, args.batch), device=device)
state = None
for step in range(args.steps):
    batch = data[step % 8]
    if state is not None:
        state = tuple(s.detach() for s in state) if isinstance(state, tuple) else state.detach()
    scores, state = model(batch[:-1], state)
    loss = F.cross_entropy(scores.view(-1, args.vocabulary), batch[1:].reshape(-1))
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.25)
    optimizer.step()
    if step % 10 == 0:
        print(step, loss.item())
