"""Make what torchtitan reads from its working folder: a tokenizer and a data set."""

import json
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

TEXTS = [f"The quick fox number {at} jumps over {at * 7 % 13} lazy dogs." for at in range(2000)]
WORDS = {"bos_token": "<|begin_of_text|>", "eos_token": "<|end_of_text|>"}

folder = Path("tests/assets/tokenizer")
folder.mkdir(parents=True)
tokenizer = Tokenizer(models.BPE())
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel()
tokenizer.decoder = decoders.ByteLevel()
alphabet = pre_tokenizers.ByteLevel.alphabet()
trainer = trainers.BpeTrainer(
    vocab_size=500, special_tokens=[*WORDS.values()], initial_alphabet=alphabet
)
tokenizer.train_from_iterator(TEXTS, trainer)
tokenizer.save(str(folder / "tokenizer.json"))
settings = WORDS | {"add_bos_token": True, "add_eos_token": True}
(folder / "tokenizer_config.json").write_text(json.dumps(settings))
data = Path("tests/assets/c4_test")
data.mkdir()
lines = (json.dumps({"text": text * 3, "timestamp": "", "url": ""}) for text in TEXTS)
(data / "data.json").write_text("\n".join(lines))
