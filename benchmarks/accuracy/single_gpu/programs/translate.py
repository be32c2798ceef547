"""Translation: PyTorch's own nn.Transformer (big), bfloat16 autocast, Adam, smoothed labels, masks of padding."""

import argparse

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=30)
parser.add_argument("--tiny", action="store_true")
parser.add_argument("--batch", type=int, default=128)
parser.add_argument("--length", type=int, default=128)
parser.add_argument("--width", type=int, default=1024)
args = parser.parse_args()
layers, vocabulary = 6, 32768
if args.tiny:
    args.batch, args.length, args.width, layers, vocabulary = 4, 16, 64, 2, 256
device = "cuda" if torch.cuda.is_available() else "cpu"


class Translator(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, args.width, padding_idx=0)
        self.position = nn.Parameter(torch.randn(args.length, args.width) * 0.02)
        self.core = nn.Transformer(
            args.width, 16, layers, layers, 4 * args.width, dropout=0.1, batch_first=True
        )
        self.head = nn.Linear(args.width, vocabulary)

    def forward(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        hidden = source == 0
        causal = nn.Transformer.generate_square_subsequent_mask(args.length, device=source.device)
        x, y = self.tokens(source) + self.position, self.tokens(target) + self.position
        out = self.core(
            x,
            y,
            tgt_mask=causal,
            src_key_padding_mask=hidden,
            memory_key_padding_mask=hidden,
            tgt_is_causal=True,
        )
        return self.head(out)


torch.manual_seed(0)
torch.set_float32_matmul_precision("high")
model = Translator().to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, betas=(0.9, 0.98))
loss_of = nn.CrossEntropyLoss(ignore_index=0, label_smoothing=0.1)
source = torch.randint(1, vocabulary, (4, args.batch, args.length), device=device)
target = torch.randint(1, vocabulary, (4, args.batch, args.length + 1), device=device)
for step in range(args.steps):
    words = target[step % 4]
    with torch.autocast(device, torch.bfloat16):
        scores = model(source[step % 4], words[:, :-1])
        loss = loss_of(scores.view(-1, vocabulary), words[:, 1:].reshape(-1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 0:
        print(step, loss.item())
