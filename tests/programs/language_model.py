"""A Llama of Hugging Face's and random tokens: what several programs train."""

import torch
from torch.utils.data import Dataset
from transformers import LlamaConfig, LlamaForCausalLM


class Tokens(Dataset):
    """Sequences of random tokens, the same ones in every run."""

    def __init__(self, count=256, length=32, vocabulary=128):
        generator = torch.Generator().manual_seed(0)
        self.tokens = torch.randint(0, vocabulary, (count, length), generator=generator)

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, at):
        return {"input_ids": self.tokens[at], "labels": self.tokens[at]}


def llama(layers=2, width=64, inner=128, heads=4, groups=2, vocabulary=128, length=64):
    config = LlamaConfig(
        vocab_size=vocabulary, hidden_size=width, intermediate_size=inner,
        num_hidden_layers=layers, num_attention_heads=heads, num_key_value_heads=groups,
        max_position_embeddings=length,
    )  # fmt: skip
    return LlamaForCausalLM(config)
