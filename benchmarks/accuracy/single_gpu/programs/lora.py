"""LoRA (peft) of a Llama 3.2 1B (transformers) in bfloat16, with gradient checkpointing or without."""

import argparse

import torch
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=30)
parser.add_argument("--tiny", action="store_true")
parser.add_argument("--checkpoint", action="store_true")
parser.add_argument("--batch", type=int, default=4)
parser.add_argument("--length", type=int, default=1024)
args = parser.parse_args()
device = "cuda" if torch.cuda.is_available() else "cpu"
sizes = {
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_hidden_layers": 16,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
}
if args.tiny:
    sizes = {
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "vocab_size": 256,
    }
    args.batch, args.length = 2, 32

torch.manual_seed(0)
with torch.device(device):
    base = LlamaForCausalLM(LlamaConfig(tie_word_embeddings=True, use_cache=False, **sizes))
base.to(torch.bfloat16)
if args.checkpoint:
    base.gradient_checkpointing_enable()
    base.enable_input_require_grads()
adapters = LoraConfig(
    r=16,
    lora_alpha=32,
    lora_dropout=0.05,
    task_type="CAUSAL_LM",
    target_modules=["q_proj", "k_proj", "v_proj", "o_proj"],
)
model = get_peft_model(base, adapters)
model.train()
optimizer = torch.optim.AdamW((p for p in model.parameters() if p.requires_grad), lr=2e-4)
data = torch.randint(0, sizes["vocab_size"], (8, args.batch, args.length))
for step in range(args.steps):
    tokens = data[step % 8].to(device)
    loss = model(input_ids=tokens, labels=tokens).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if step % 10 == 0:
        print(step, loss.item())
