"""A masked autoencoder: a ViT-L of a quarter of the patches, a small decoder of all; bfloat16 autocast, AdamW."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=30)
parser.add_argument("--tiny", action="store_true")
parser.add_argument("--compile", action="store_true")
parser.add_argument("--batch", type=int, default=256)
args = parser.parse_args()
layers, width, heads = 24, 1024, 16
deep, narrow, few = 8, 512, 16
if args.tiny:
    args.batch, layers, width, heads, deep, narrow, few = 2, 2, 64, 4, 2, 64, 4
device = "cuda" if torch.cuda.is_available() else "cpu"
PATCHES, KEPT = 196, 49


def blocks(count: int, width: int, heads: int) -> nn.TransformerEncoder:
    layer = nn.TransformerEncoderLayer(
        width, heads, 4 * width, 0.0, F.gelu, batch_first=True, norm_first=True
    )
    return nn.TransformerEncoder(layer, count, nn.LayerNorm(width), enable_nested_tensor=False)


class Autoencoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, width, 16, 16)
        self.places, self.later = (
            nn.Parameter(torch.zeros(1, PATCHES, w)) for w in (width, narrow)
        )
        self.encoder, self.decoder = blocks(layers, width, heads), blocks(deep, narrow, few)
        self.narrow, self.hidden = nn.Linear(width, narrow), nn.Parameter(torch.zeros(1, 1, narrow))
        self.head = nn.Linear(narrow, 768)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        b = images.shape[0]
        x = self.patch(images).flatten(2).transpose(1, 2) + self.places
        order = torch.rand(b, PATCHES, device=x.device).argsort(dim=1)
        back = order.argsort(dim=1)
        kept = order[:, :KEPT, None]
        x = self.narrow(self.encoder(x.gather(1, kept.expand(-1, -1, width))))
        x = torch.cat((x, self.hidden.to(x.dtype).expand(b, PATCHES - KEPT, -1)), dim=1)
        x = x.gather(1, back[:, :, None].expand(-1, -1, narrow))
        out = self.head(self.decoder(x + self.later))
        goal = (
            images.unfold(2, 16, 16)
            .unfold(3, 16, 16)
            .permute(0, 2, 3, 4, 5, 1)
            .reshape(b, PATCHES, 768)
        )
        missed = (back >= KEPT).float()
        return ((out.float() - goal).square().mean(-1) * missed).sum() / missed.sum()


torch.manual_seed(0)
model: nn.Module = Autoencoder().to(device)
optimizer = torch.optim.AdamW(
    model.parameters(), lr=1.5e-4, betas=(0.9, 0.95), fused=device == "cuda"
)
if args.compile:
    model = torch.compile(model)
images = torch.randn(2, args.batch, 3, 224, 224, device=device)
for step in range(args.steps):
    with torch.autocast(device, torch.bfloat16):
        loss = model(images[step % 2])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 0:
        print(step, loss.item())
