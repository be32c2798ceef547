"""T5 (transformers), an encoder and a decoder, in bfloat16 autocast, Adafactor or AdamW."""

import argparse

import torch
from transformers import T5Config, T5ForConditionalGeneration

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=30)
parser.add_argument("--tiny", action="store_true")
parser.add_argument("--batch", type=int, default=16)
parser.add_argument("--source", type=int, default=512)
parser.add_argument("--target", type=int, default=128)
args = parser.parse_args()
device = "cuda" if torch.cuda.is_available() else "cpu"
sizes = {"d_model": 768, "d_kv": 64, "d_ff": 3072, "num_layers": 12, "num_heads": 12}
if args.tiny:
    sizes = {"d_model": 64, "d_kv": 32, "d_ff": 128, "num_layers": 2, "num_heads": 2}
    args.batch, args.source, args.target = 2, 32, 16

torch.manual_seed(0)
with torch.device(device):
    model = T5ForConditionalGeneration(T5Config(decoder_start_token_id=0, **sizes))
model.train()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=device == "cuda")
source = torch.randint(2, 32000, (8, args.batch, args.source))
target = torch.randint(2, 32000, (8, args.batch, args.target))
for step in range(args.steps):
    with torch.autocast(device, torch.bfloat16):
        loss = model(input_ids=source[step % 8].to(device), labels=target[step % 8].to(device)).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if step % 10 == 0:
        print(step, loss.item())
