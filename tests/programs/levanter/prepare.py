"""Make what Levanter reads from its working folder: a tokenizer, a model's sizes, and texts."""

import json
from pathlib import Path

from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, PreTrainedTokenizerFast

words = {str(at): at for at in range(254)} | {"<unk>": 254, "<eos>": 255}
tokenizer = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
special = {"unk_token": "<unk>", "eos_token": "<eos>", "bos_token": "<eos>"}
PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special).save_pretrained("reference")
LlamaConfig(
    vocab_size=256, hidden_size=64, intermediate_size=128, num_hidden_layers=2,
    num_attention_heads=4, num_key_value_heads=2,
).save_pretrained("reference")  # fmt: skip
texts = (" ".join(str((at * 7 + n * n) % 254) for n in range(200)) for at in range(400))
Path("train.jsonl").write_text("\n".join(json.dumps({"text": text}) for text in texts))
