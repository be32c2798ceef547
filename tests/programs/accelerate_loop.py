"""A custom loop with accelerate: gradient accumulation, clipping, gathered metrics."""

import argparse

import torch
from accelerate import Accelerator, FullyShardedDataParallelPlugin
from language_model import Tokens, llama
from torch.utils.data import DataLoader
from transformers import get_cosine_schedule_with_warmup

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=5)
parser.add_argument("--accumulate", type=int, default=2)
parser.add_argument("--mixed-precision", default="no")
parser.add_argument("--fsdp", type=int, choices=(1, 2))
args = parser.parse_args()

plugin = None
if args.fsdp:
    plugin = FullyShardedDataParallelPlugin(
        fsdp_version=args.fsdp, auto_wrap_policy="transformer_based_wrap",
        transformer_cls_names_to_wrap=["LlamaDecoderLayer"],
    )  # fmt: skip
accelerator = Accelerator(
    gradient_accumulation_steps=args.accumulate, mixed_precision=args.mixed_precision,
    fsdp_plugin=plugin, cpu=not torch.cuda.is_available(),
)  # fmt: skip
torch.manual_seed(0)
model = llama()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
loader = DataLoader(Tokens(), batch_size=2, shuffle=True)
scheduler = get_cosine_schedule_with_warmup(optimizer, 2, 100)
model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
model.train()
done = 0
for batch in loader:
    with accelerator.accumulate(model):
        loss = model(**batch).loss
        accelerator.backward(loss)
        if accelerator.sync_gradients:
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
    if accelerator.sync_gradients:
        mean = accelerator.gather_for_metrics(loss.detach()).mean()
        accelerator.print(f"step {done}: {mean.item():.4f}")
        done += 1
    if done == args.steps:
        break
accelerator.end_training()
