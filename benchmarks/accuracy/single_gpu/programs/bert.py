"""BERT-large for classification (transformers), float16 autocast with a scaler, clipped gradients."""

import argparse

import torch
from transformers import BertConfig, BertForSequenceClassification

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=30)
parser.add_argument("--tiny", action="store_true")
parser.add_argument("--batch", type=int, default=32)
parser.add_argument("--length", type=int, default=384)
args = parser.parse_args()
device = "cuda" if torch.cuda.is_available() else "cpu"
sizes = {
    "hidden_size": 1024,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "intermediate_size": 4096,
}
if args.tiny:
    sizes = {
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 128,
    }
    args.batch, args.length = 2, 32

torch.manual_seed(0)
with torch.device(device):
    model = BertForSequenceClassification(BertConfig(num_labels=2, **sizes))
model.train()
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5, weight_decay=0.01)
scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, args.steps)
scaler = torch.amp.GradScaler(device)
tokens = torch.randint(1000, 30000, (8, args.batch, args.length))
lengths = torch.randint(args.length // 2, args.length + 1, (8, args.batch))
masks = (torch.arange(args.length) < lengths[..., None]).long()
labels = torch.randint(0, 2, (8, args.batch))
for step in range(args.steps):
    i = step % 8
    with torch.autocast(device, torch.float16):
        loss = model(
            input_ids=tokens[i].to(device),
            attention_mask=masks[i].to(device),
            labels=labels[i].to(device),
        ).loss
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    scheduler.step()
    if step % 10 == 0:
        print(step, loss.item())
