"""Made-up text and rows: the content of a column, from its name.

The idea: the name in ``row["label"]`` shows what the program expects: common column names mean the
same in nearly all data sets.  Any other column is text.  Text is a sequence of words that are
single tokens of a made-up tokenizer, so that a row has as many tokens as words.

    value("input_ids")       # [5, 6, 7, ...], 1,024 of them
    value("label")           # 0
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

#: Number of words in a row of text, and of tokens in a row of tokens.
LENGTH = 1024
#: Number of different words.
WORDS = 1000
#: Pixels of an image in each direction.
PIXELS = 224
#: Samples of a sound: ten seconds.
RATE, SAMPLES = 16_000, 160_000


def text(words: int = LENGTH) -> str:
    """A text of ``count`` words."""
    return " ".join(f"w{number % WORDS}" for number in range(words))


def image(size: tuple[int, int] = (PIXELS, PIXELS), mode: str = "RGB") -> Any:
    """A black Pillow image, (width, height)."""
    from PIL import Image

    return Image.new(mode, size)


def _tokens() -> list[int]:
    return [number % WORDS for number in range(LENGTH)]


def _mask() -> list[int]:
    return [1] * LENGTH


def _messages() -> list[dict[str, str]]:
    half = text(LENGTH // 2)
    return [{"role": "user", "content": half}, {"role": "assistant", "content": half}]


def _images() -> list[Any]:
    return [image()]


def _turns() -> list[dict[str, str]]:
    half = text(LENGTH // 2)
    return [{"user": half, "assistant": half}]


def _sound() -> dict[str, Any]:
    return {"array": [0.0] * SAMPLES, "sampling_rate": RATE}


#: Pattern of a column's name -> description of its content, and a value.
_BY_NAME: Mapping[str, tuple[str, Callable[[], Any]]] = {
    r"tokens|(\w+_)?ids": (f"{LENGTH:,} tokens", _tokens),
    r"(\w+_)?mask": (f"{LENGTH:,} ones", _mask),
    r"labels?|targets?|class|y|idx|index|id|\w+_(label|id|idx)|length": ("0", int),
    r"image|img|picture|jpg|png|pixel_values": (f"an image of {PIXELS} x {PIXELS} pixels", image),
    r"images": (f"one image of {PIXELS} x {PIXELS} pixels", _images),  # beside texts, as published
    r"texts": ("a user's question and an assistant's answer", _turns),
    r"audio|speech|wav": ("a sound of 10 s", _sound),
    r"messages|conversations?|dialog(ue)?": ("a question and an answer", _messages),
    r"score|rating|weight|value": ("0.0", float),
}


def value(column: str) -> Any:
    """The value of a row in a column."""
    return _of(column)[1]()


def described(column: str) -> str:
    """The description of that value."""
    return _of(column)[0]


def _of(column: str) -> tuple[str, Callable[[], Any]]:
    for pattern, found in _BY_NAME.items():
        if re.fullmatch(pattern, column, re.IGNORECASE):
            return found
    return f"text of {LENGTH:,} words", text
