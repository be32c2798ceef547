"""Tokenizers with missing files.

The idea: a token is a word.  The size of the vocabulary and the maximum length come from the
model's configuration if it is on this machine; else they are common values, which the warning
names.  Made-up text (``words.py``) and any other text have one token per word.

    AutoTokenizer.from_pretrained("some/model")("w1 w2").input_ids      # [9, 10]
"""

from __future__ import annotations

import contextlib
import os
import re
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
#: What else a program says of its tokenizer.
_SAID = (
    "model_max_length", "padding_side", "truncation_side", "chat_template",
    "extra_special_tokens", "additional_special_tokens",
)  # fmt: skip
#: Messages of the library and of its hub: a model's folder has no tokenizer files; a folder that is
#: not here is taken for a model's name.  Before release 5 it reads the file that there is none of.
_NO_FILES = (
    "Couldn't instantiate the backend tokenizer", "Repo id must ",
    "'NoneType' object has no attribute 'endswith'", "not a string",
)  # fmt: skip
#: Of a trainer that has made-up text: it has fewer words than the vocabulary is to have.
_TOO_FEW = ("INTERNAL: ", "Internal: ", "INVALID_ARGUMENT: ", "Vocabulary size too high")
#: Its special pieces and their usual ids; -1: there is none.
_PIECES = {"unk": 0, "bos": 1, "eos": 2, "pad": -1}
#: The special pieces of a model that the program has not trained.
_ALL_PIECES = {"pad": 0, "eos": 1, "unk": 2, "bos": 3}
#: Names of files of models.
_MODEL = (".model", ".spm")
#: How TensorFlow reports that a store cannot be reached; of a file it says the kind of error.
_NO_STORE = ("Error executing an HTTP request",)
_PAIR = re.compile(r"--(\w+)=(\S+)")
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
    given: dict[str, Any] = {"model_max_length": longest} if longest else {}
    given |= _SPECIAL | {"chat_template": _CHAT}
    given |= {word: kwargs[word] for word in (*_SPECIAL, *_SAID) if kwargs.get(word) is not None}
    made = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **given)
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


def _trained(*args: Any, **kwargs: Any) -> Made:
    asked: Any = dict(_PAIR.findall(args[0])) if args else kwargs
    size, place = int(asked.get("vocab_size", 8_000)), f"{asked['model_prefix']}.model"
    numbers = {name: int(asked.get(f"{name}_id", usual)) for name, usual in _PIECES.items()}
    with open(place, "wb") as file:
        file.write(_model(size, numbers, asked))
    return None, f"model {place}: one token per word, {size:,} tokens"


def _loaded(processor: Any, place: Any) -> Made:
    """The model has each special piece, with T5's ids: programs ask for those that they need."""
    model, words = _read(place)
    return processor.LoadFromSerializedProto(model), words


def _read(file: Any, *_: Any, **__: Any) -> Made:
    """A model that a program reads itself, often from another machine's store."""
    place = file if isinstance(file, str | os.PathLike) else file.name
    words = f"model {os.fspath(place)}: one token per word, {_USUAL:,} tokens"
    return _model(_USUAL, _ALL_PIECES, {}), words


def _is_model(file: str | os.PathLike[str], *_: Any, **__: Any) -> bool:
    return os.fspath(file).endswith(_MODEL)


def _is_open_model(file: Any, *_: Any, **__: Any) -> bool:
    return _is_model(file.name) and "b" in file.mode


def _model(size: int, numbers: dict[str, int], asked: Any) -> bytes:
    """Words are pieces, and the rest of the vocabulary are words that no text has."""
    protos: Any = import_module("sentencepiece.sentencepiece_model_pb2")
    model = protos.ModelProto()
    model.trainer_spec.vocab_size = size
    model.normalizer_spec.name = "identity"
    pieces = [f"\N{LOWER ONE EIGHTH BLOCK}w{number}" for number in range(size)]
    kinds = dict.fromkeys(pieces, 1)
    for name, number in sorted(numbers.items(), key=lambda item: item[1]):
        setattr(model.trainer_spec, f"{name}_id", number)
        if number >= 0:
            text = asked.get(f"{name}_piece", {"bos": "<s>", "eos": "</s>"}.get(name, f"<{name}>"))
            pieces.insert(number, text)
            kinds[text] = 2 if name == "unk" else 3
    for piece in pieces[:size]:
        model.pieces.add(piece=piece, score=0.0, type=kinds[piece])
    written: bytes = model.SerializeToString()
    return written


def _names_its_model(*args: Any, **kwargs: Any) -> bool:
    return "model_prefix" in (args[0] if args and isinstance(args[0], str) else kwargs)


def _is_empty(tokenizer: Any) -> bool:
    """Whether a library made a tokenizer without its vocabulary, as newer versions do."""
    return len(tokenizer) <= len(getattr(tokenizer, "added_tokens_encoder", ()))


STAND_INS = (
    StandIn("transformers.models.auto.tokenization_auto", "AutoTokenizer.from_pretrained",
            _pretrained, empty=_is_empty, says=_NO_FILES),
    StandIn("transformers.tokenization_utils_base", "PreTrainedTokenizerBase.from_pretrained",
            _pretrained, empty=_is_empty, says=_NO_FILES),
    StandIn("sentencepiece", "SentencePieceTrainer.Train", _trained, _names_its_model,
            says=_TOO_FEW),
    StandIn("sentencepiece", "SentencePieceProcessor.LoadFromFile", _loaded,
            says=("NOT_FOUND: ", "Not found: ")),
    StandIn("etils.epath.abstract_path", "Path.read_bytes", _read, _is_model, says=_NO_STORE),
    StandIn("tensorflow.python.lib.io.file_io", "FileIO.read", _read, _is_open_model,
            says=_NO_STORE),
    StandIn("tiktoken", "get_encoding", _encoding, _is_known),
)  # fmt: skip
