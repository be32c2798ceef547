"""What Levanter reads: a small model's configuration, a tokenizer, and texts as tokens."""

import json
from pathlib import Path

from tokenizers import Tokenizer, models
from transformers import LlamaConfig, PreTrainedTokenizerFast

CONFIGURATION = """
data:
  tokenizer: passthrough
  vocab_size: 256
  components:
    tokens:
      source: {type: url, train_urls: [tokens.jsonl]}
      format: {type: prebuilt}
model:
  type: llama
  reference_checkpoint: reference
  tokenizer: reference
  max_seq_len: 64
  hidden_dim: 64
  intermediate_dim: 128
  num_heads: 4
  num_kv_heads: 2
  num_layers: 2
  attn_backend: VANILLA
trainer:
  require_accelerator: false
  tracker: {type: noop}
  mp: p=f32,c=bfloat16
  train_batch_size: 16
  num_train_steps: 6
"""

if __name__ == "__main__":
    Path("small.yaml").write_text(CONFIGURATION)
    words = Tokenizer(models.WordLevel({str(number): number for number in range(256)}))
    PreTrainedTokenizerFast(tokenizer_object=words).save_pretrained("reference")
    LlamaConfig(vocab_size=256).save_pretrained("reference")
    texts = ([(13 * text + token) % 256 for token in range(64)] for text in range(8192))
    lines = (json.dumps({"input_ids": tokens}) for tokens in texts)
    Path("tokens.jsonl").write_text("\n".join(lines))
