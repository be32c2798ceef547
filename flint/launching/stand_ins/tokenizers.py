"""Tokenizers with missing files.

The idea: a token is a word.  The size of the vocabulary and the maximum length come from the
model's configuration if it is on this machine; else they are common values, which the warning
names.  Made-up text (``words.py``) and any other text have one token per word.

    AutoTokenizer.from_pretrained("some/model")("w1 w2").input_ids      # [9, 10]
"""

from __future__ import annotations

import contextlib
import sys
from importlib import import_module
from typing import Any

from flint.launching.stand_ins.missing import Made, StandIn

#: Default size of a vocabulary.
_USUAL = 32_000
#: Sizes of the vocabularies that ``tiktoken`` knows by name.
_TIKTOKEN = {
    "gpt2": 50_257, "r50k_base": 50_257, "p50k_base": 50_281, "p50k_edit": 50_284,
    "cl100k_base": 100_277, "o200k_base": 200_019, "o200k_harmony": 201_088,
}  # fmt: skip
_SPECIAL = {
    "unk_token": "<unk>", "pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>",
    "cls_token": "<cls>", "sep_token": "<sep>", "mask_token": "<mask>",
}  # fmt: skip
#: The library's message that a model's folder has no tokenizer files.
_NO_FILES = ("Couldn't instantiate the backend tokenizer",)
#: Template that turns a conversation into text.
_CHAT = "{% for message in messages %}{{ message['content'] }} {% endfor %}"


def _pretrained(kind: Any, name: Any, *_: Any, **kwargs: Any) -> Made:
    transformers: Any = sys.modules["transformers"]
    library: Any = import_module("tokenizers")
    config = kwargs.get("config")
    with contextlib.suppress(Exception):  # it is not there either
        config = config or transformers.AutoConfig.from_pretrained(name, local_files_only=True)
    text = getattr(config, "text_config", config)
    size = int(getattr(text, "vocab_size", None) or _USUAL)
    longest = getattr(text, "max_position_embeddings", None)
    known = [*_SPECIAL.values(), *(f"w{number}" for number in range(size))][:size]
    model: Any = library.models.WordLevel(
        {word: at for at, word in enumerate(known)}, unk_token="<unk>"
    )
    tokenizer: Any = library.Tokenizer(model)
    tokenizer.pre_tokenizer = library.pre_tokenizers.WhitespaceSplit()
    given = {"model_max_length": longest} if longest else {}
    made = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **_SPECIAL, **given)
    made.chat_template = _CHAT
    by = "from its configuration" if config is not None else "a usual number"
    return made, f"tokenizer {name}: one token per word, {size:,} tokens ({by})"


def _encoding(name: str, *_: Any, **__: Any) -> Made:
    """Bytes are tokens; the vocabulary is as large as the real one."""
    tiktoken: Any = sys.modules["tiktoken"]
    size = _TIKTOKEN[name]
    made = tiktoken.Encoding(
        name=name, pat_str=r"\S+\s*|\s+",
        mergeable_ranks={bytes([byte]): byte for byte in range(256)},
        special_tokens={"<|endoftext|>": size - 1},
    )  # fmt: skip
    return made, f"encoding {name}: one token per byte, {size:,} tokens"


def _is_known(name: str, *_: Any, **__: Any) -> bool:
    return name in _TIKTOKEN


def _is_empty(tokenizer: Any) -> bool:
    """Whether a library made a tokenizer without its vocabulary, as newer versions do."""
    return len(tokenizer) <= len(getattr(tokenizer, "added_tokens_encoder", ()))


STAND_INS = (
    StandIn("transformers.models.auto.tokenization_auto", "AutoTokenizer.from_pretrained",
            _pretrained, empty=_is_empty, says=_NO_FILES),
    StandIn("transformers.tokenization_utils_base", "PreTrainedTokenizerBase.from_pretrained",
            _pretrained, empty=_is_empty, says=_NO_FILES),
    StandIn("tiktoken", "get_encoding", _encoding, _is_known),
)  # fmt: skip
