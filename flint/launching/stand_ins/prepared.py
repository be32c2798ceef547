"""Missing data sets of ``tensorflow_datasets``.

The idea: where the library finds no prepared data set, one is written to a folder of Flint, in the
library's own files, with the features that the data set's code declares.  The library then reads it
with its own functions: splits and their parts, decoders, shuffling, both kinds of files.  All rows
are equal, and all files of a split are one file with several names.

    builder = tfds.builder("imagenet2012")                  # not on this machine
    builder.info.splits["train"].num_examples               # 131072
"""

from __future__ import annotations

import dataclasses
import functools
import os
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from flint.launching.stand_ins import words
from flint.launching.stand_ins.missing import Made, StandIn

_PACKAGE = "tensorflow_datasets.core"
_FOLDER = "tensorflow_datasets"
#: Rows of a file.
_ROWS = 1024
#: Splits and their files: an evaluation may read all of its own before the training begins.
_SPLITS = {"train": 128, "validation": 8, "test": 8}
#: Words of a text: a sentence, because programs drop what is longer than their sequences.
_SENTENCE = 16
#: How the library's own error about missing data begins.
_SAYS = ("Dataset ",)


def stand_ins(folder: Path) -> tuple[StandIn, ...]:
    """The functions that find prepared data sets.

    Args:
        folder: for the files of made-up data sets.
    """
    lock = threading.Lock()

    def make(builder: Any, *_: Any, **__: Any) -> Made:
        with lock:
            return _prepared(builder, folder / _FOLDER)

    def is_unprepared(builder: Any, *_: Any, **__: Any) -> bool:
        return not builder.info.initialized

    module, builder = f"{_PACKAGE}.dataset_builder", "DatasetBuilder"
    return (
        StandIn(module, "FileReaderBuilder.__init__", make, is_unprepared, _is_made_later),
        StandIn(module, f"{builder}.download_and_prepare", make, is_unprepared, says=_SAYS),
        StandIn(module, f"{builder}.as_dataset", make, is_unprepared, says=_SAYS),
        StandIn(
            f"{_PACKAGE}.splits", "_rel_to_abs_instr", _shorter,
            functools.partial(_is_made_up, folder / _FOLDER), says=("Requested slice ",),
        ),
    )  # fmt: skip


def _is_made_later(found: None) -> bool:
    """A builder has no result of its own; whether it has data is asked with its arguments."""
    return True


def _is_made_up(folder: Path, part: Any, splits: Any) -> bool:
    """Whether a part of a split is one of a data set in that folder."""
    place = os.fspath(splits[part.split_name].filename_template.data_dir)
    return Path(place).is_relative_to(folder)


def _shorter(part: Any, splits: Any) -> Made:
    """A part of as many of the made-up rows as there are: the real data set has more."""
    most = splits[part.split_name].num_examples
    begin, end = (most if edge is None else edge for edge in (part.from_ or 0, part.to))
    number = min(end - begin, most) if (begin < 0) == (end < 0) else most
    begin = min(max(begin, -most), most - number)
    kept = dataclasses.replace(part, from_=begin, to=begin + number or None)
    found = _core("splits")._rel_to_abs_instr(kept, splits)
    return found, f"{part} is {number:,} equal rows"


def _prepared(builder: Any, folder: Path) -> Made:
    """Make a builder read a made-up data set."""
    info, kind = builder.info, builder.info.file_format
    inside = os.path.relpath(str(builder._data_dir), str(builder._data_dir_root))
    root = folder / kind.file_suffix
    place = root / inside
    builder._data_dir_root, builder._data_dir = str(root), str(place)
    builder._original_state["data_dir"] = str(root)  # of copies in other processes
    if not (place / "dataset_info.json").exists():
        place.mkdir(parents=True, exist_ok=True)
        _write(info, kind, place)
    info.read_from_directory(str(place))
    text = ", ".join(f"{_ROWS * files:,} in {split}" for split, files in _SPLITS.items())
    return None, (
        f"data set {info.full_name}: equal rows with its features (texts of {_SENTENCE} words), "
        f"{text}"
    )


def _write(info: Any, kind: Any, place: Path) -> None:
    row = info.features.serialize_example(_value(info.features))
    adapter = _core("file_adapters").ADAPTER_FOR_FORMAT[kind]
    splits = []
    for split, files in _SPLITS.items():
        template = _core("naming").ShardedFileTemplate(
            data_dir=sys.modules["etils.epath"].Path(place), dataset_name=info.name, split=split,
            filetype_suffix=kind.file_suffix,
        )  # fmt: skip
        first, *others = template.sharded_filepaths(files)
        adapter.write_examples(first, ((number, row) for number in range(_ROWS)))
        for other in others:
            os.link(first, other)
        size = os.path.getsize(first) * files
        splits.append(_core("splits").SplitInfo(split, [_ROWS] * files, size, template))
    info.set_splits(_core("splits").SplitDict(splits))
    info.write_to_directory(str(place))


def _core(name: str) -> Any:
    return sys.modules[f"{_PACKAGE}.{name}"]


def _value(feature: Any) -> Any:
    """What a data set's code would give for a feature: zeros, black images, words."""
    features: Any = sys.modules[f"{_PACKAGE}.features"]
    for name, make in _BY_KIND.items():
        if isinstance(feature, getattr(features, name)):
            return make(feature)
    return _tensor(feature)


def _tensor(feature: Any) -> Any:
    if feature.np_dtype in (object, str, bytes):
        return np.full(_shape(feature), "", object) if feature.shape else ""
    return np.zeros(_shape(feature), feature.np_dtype)


def _shape(feature: Any) -> tuple[int, ...]:
    """A feature's shape; unknown are the length of a text, or pixels and their three colours."""
    if len(feature.shape) == 1:
        return (feature.shape[0] or words.LENGTH,)
    *pixels, last = feature.shape or (None,)
    return (*(size or words.PIXELS for size in pixels), last or 3) if feature.shape else ()


def _several(feature: Any) -> Any:
    """The one element of a sequence, or as many numbers as a text has words."""
    inner = feature.feature
    scalar = not getattr(inner, "keys", None) and getattr(inner, "shape", None) == ()
    number = feature._length or (words.LENGTH if scalar else 1)
    return [_value(inner)] * number


def _box(feature: Any) -> Any:
    return sys.modules[f"{_PACKAGE}.features"].BBox(0.0, 0.0, 1.0, 1.0)


#: Kinds of features, special ones first, and their values; others are tensors.
_BY_KIND: Mapping[str, Callable[[Any], Any]] = {
    "Text": lambda feature: words.text(_SENTENCE),
    "BBoxFeature": _box,
    "Audio": lambda feature: np.zeros(words.SAMPLES, np.int64),
    "TranslationVariableLanguages": lambda feature: dict.fromkeys(
        feature.languages, words.text(_SENTENCE)
    ),
    "FeaturesDict": lambda feature: {key: _value(inner) for key, inner in feature.items()},
    "Video": _tensor,
    "Sequence": _several,
    "Image": _tensor,
}
