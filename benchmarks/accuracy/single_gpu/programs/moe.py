"""A small mixture of experts of transformers (Qwen3-MoE or Mixtral) in bfloat16."""

import argparse

import torch
from transformers import MixtralConfig, MixtralForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=30)
parser.add_argument("--tiny", action="store_true")
parser.add_argument("--model", choices=["qwen3", "mixtral"], default="qwen3")
parser.add_argument("--batch", type=int, default=4)
parser.add_argument("--length", type=int, default=2048)
parser.add_argument("--layers", type=int, default=8)
args = parser.parse_args()
device = "cuda" if torch.cuda.is_available() else "cpu"
width, inner, vocabulary = 1024, 512, 32000
if args.tiny:
    args.batch, args.length, args.layers, width, inner, vocabulary = 2, 32, 2, 64, 32, 256

torch.manual_seed(0)
common = {
    "hidden_size": width,
    "num_hidden_layers": args.layers,
    "num_attention_heads": width // 64,
    "num_key_value_heads": max(width // 256, 1),
    "vocab_size": vocabulary,
    "use_cache": False,
    "attn_implementation": "sdpa",
}
with torch.device(device):
    if args.model == "qwen3":
        config = Qwen3MoeConfig(
            moe_intermediate_size=inner,
            num_experts=32,
            num_experts_per_tok=4,
            head_dim=64,
            **common,
        )
        model = Qwen3MoeForCausalLM(config).to(torch.bfloat16)
    else:
        config = MixtralConfig(intermediate_size=4 * inner, num_local_experts=8, **common)
        model = MixtralForCausalLM(config).to(torch.bfloat16)
model.train()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
data = torch.randint(0, vocabulary, (8, args.batch, args.length))
for step in range(args.steps):
    tokens = data[step % 8].to(device)
    loss = model(input_ids=tokens, labels=tokens).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if step % 10 == 0:
        print(step, loss.item())
