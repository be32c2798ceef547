"""Missing data sets of Hugging Face's ``datasets``.

The idea: a few repeated rows, in a data set of the library's own type: maps and filters run on
these rows, and the result is repeated again.  Columns are created when the program uses their names
(``words.py``).  Made-up data sets are recognised by their description, which derived data sets
inherit.

    rows = datasets.load_dataset("some/corpus", split="train")        # not on this machine
    rows.map(lambda row: {"pair": row["question"] + row["answer"]})[0]
"""

from __future__ import annotations

import functools
import itertools
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from flint.host.imports import watch_imports
from flint.launching.stand_ins import missing, words
from flint.launching.stand_ins.missing import Made, StandIn

_DESCRIPTION = "made up by flint run --fake-data"
#: The number of different rows, and the apparent number of rows.
_DIFFERENT, _ROWS = 1000, 1 << 17
#: The apparent number of files of a stream: many numbers of ranks divide it.
_FILES = 7_680
_SPLITS = ("train", "validation", "test")
#: The number of classes, if a program asks for it.
_CLASSES = 2
#: The column that exists before any is used.
_FIRST = "text"

#: Made-up data sets whose functions are running.
_mapping: list[Any] = []


class _Row(dict[str, Any]):
    """A row that has every column."""

    def __missing__(self, column: str) -> Any:
        return _value(column)


class _Rows(dict[str, Any]):
    """Several rows, column by column, with every column."""

    def __missing__(self, column: str) -> Any:
        number = len(next(iter(self.values()), ()))
        return [_value(column)] * number


def _made(path: Any, *_: Any, split: Any = None, streaming: bool = False, **__: Any) -> Made:
    library: Any = sys.modules["datasets"]
    _watch_columns(library)
    one = _stream if streaming else _rows
    several = library.IterableDatasetDict if streaming else library.DatasetDict
    found: Any
    if isinstance(split, list | tuple):
        found = [one(library) for _ in split]
    elif split is not None:
        found = one(library)
    else:
        found = several({name: one(library) for name in _SPLITS})
    number = "without end" if streaming else f"{_ROWS:,}"
    what = words.described(_FIRST)
    return found, f"data set {path}: rows ({number}), column {_FIRST}: {what}"


def _value(column: str) -> Any:
    missing.note(f"column {column} of a made-up data set: {words.described(column)}")
    return words.value(column)


def _rows(library: Any) -> Any:
    info = library.DatasetInfo(description=_DESCRIPTION)
    columns = {_FIRST: [words.value(_FIRST)] * _DIFFERENT}
    return _repeated(library.Dataset.from_dict(columns, info=info), _ROWS)


def _stream(library: Any) -> Any:
    files = {"files": list(range(_FILES))}  # which ranks and loaders' workers share out
    made = library.IterableDataset.from_generator(_endless, gen_kwargs=files)
    made.info.description = _DESCRIPTION
    return made


def _endless(files: list[int]) -> Iterator[_Row]:
    return itertools.repeat(_Row({_FIRST: words.value(_FIRST)}))


def _repeated(rows: Any, number: int) -> Any:
    import numpy as np

    return rows.select(np.arange(number) % len(rows)) if len(rows) else rows


def _is_made_up(rows: Any) -> bool:
    return bool(rows.info.description == _DESCRIPTION)


def receive() -> None:
    """In a process that may be sent made-up data sets: create their columns there, too."""
    watch_imports({"datasets": lambda: _watch_columns(sys.modules["datasets"])})


@functools.cache
def _watch_columns(library: Any) -> None:
    """From now on, made-up data sets create the columns that are used."""
    rows = library.Dataset
    for name in ("map", "filter"):
        _around(rows, name, _mapped)
    for name, argument in (
        ("remove_columns", "column_names"), ("select_columns", "column_names"),
        ("rename_column", "original_column_name"), ("rename_columns", "column_mapping"),
        ("cast_column", "column"), ("class_encode_column", "column"),
        ("set_format", "columns"), ("with_format", "columns"), ("sort", "column_names"),
    ):  # fmt: skip
        position = 1 if argument == "columns" else 0
        _around(rows, name, functools.partial(_with_columns, argument, position))
    _around(rows, "set_transform", _transformed)
    rows.features = property(functools.partial(_features, rows.features.fget))
    _around(rows, "__getitem__", _got)
    _around(rows, "__getitems__", _several)
    for kind in (rows, library.IterableDataset):
        _around(kind, "__iter__", _each)
    for name in ("map", "filter"):
        _around(library.IterableDataset, name, _mapped_later)
    _around(sys.modules["datasets.formatting.formatting"].LazyDict, "__getitem__", _asked)


def _around(owner: Any, name: str, function: Callable[..., Any]) -> None:
    plain = getattr(owner, name)

    @functools.wraps(plain)
    def call(*args: Any, **kwargs: Any) -> Any:
        return function(plain, *args, **kwargs)

    setattr(owner, name, call)


def _mapped(plain: Any, rows: Any, *args: Any, **kwargs: Any) -> Any:
    """As ``map`` and ``filter``, on the different rows only."""
    if not _is_made_up(rows) or _mapping:
        return plain(rows, *args, **kwargs)
    for name in ("remove_columns", "input_columns"):
        if name in kwargs:
            rows = _having(rows, kwargs[name])
    known = {"num_proc", "cache_file_name", "load_from_cache_file"}
    kept = {name: value for name, value in kwargs.items() if name not in known}
    few = rows.select(range(min(len(rows), _DIFFERENT)))
    _mapping.append(rows)
    try:
        done = plain(few, *args, **kept)
    finally:
        _mapping.pop()
    return _repeated(done, len(rows) * len(done) // max(len(few), 1))


def _mapped_later(plain: Any, rows: Any, function: Any = None, *args: Any, **kwargs: Any) -> Any:
    """As ``map`` and ``filter`` on a stream, whose rows have every column."""
    if not _is_made_up(rows) or function is None:
        return plain(rows, function, *args, **kwargs)
    kind = _Rows if kwargs.get("batched") else _Row
    return plain(rows, functools.partial(_with_every_column, kind, function), *args, **kwargs)


def _transformed(plain: Any, rows: Any, transform: Any, *args: Any, **kwargs: Any) -> Any:
    """As ``set_transform``, whose function gets batches with every column."""
    if not _is_made_up(rows) or transform is None:
        return plain(rows, transform, *args, **kwargs)

    whole = functools.partial(_with_every_column, _Rows, transform)
    return plain(rows, whole, *args, **kwargs)


def _with_every_column(kind: Any, function: Any, row: Any, *more: Any, **known: Any) -> Any:
    """The function's result for a row, or rows; other processes can be sent this one."""
    return function(kind(row), *more, **known)


def _with_columns(
    argument: str, position: int, plain: Any, rows: Any, *args: Any, **kwargs: Any
) -> Any:
    """As a method that names columns; missing ones are made up."""
    named = args[position] if len(args) > position else kwargs.get(argument)
    if _is_made_up(rows) and not _mapping and named:
        more = _having(rows, named)
        if more is not rows and plain.__name__ == "set_format":  # changes the data set itself
            vars(rows).update(vars(more))
        else:
            rows = more
    return plain(rows, *args, **kwargs)


def _having(rows: Any, named: str | Sequence[str] | None) -> Any:
    """A data set with these columns."""
    asked = [named] if isinstance(named, str) else list(named or ())
    new = [name for name in asked if name not in rows.column_names]
    if not new:
        return rows
    _mapping.append(rows)
    try:
        few = rows.select(range(min(len(rows), _DIFFERENT))).flatten_indices(keep_in_memory=True)
        for name in new:
            few = few.add_column(name, [_value(name)] * len(few))
    finally:
        _mapping.pop()
    return _repeated(few, len(rows))


def _got(plain: Any, rows: Any, key: Any) -> Any:
    """As ``rows[key]``: a column, or a row that has every column."""
    if not _is_made_up(rows) or _mapping:
        return plain(rows, key)
    if isinstance(key, str):
        return plain(_having(rows, key), key)
    found = plain(rows, key)
    return _Row(found) if isinstance(key, int) and type(found) is dict else found


def _features(plain: Any, rows: Any) -> Any:
    """As ``rows.features``; for the program, those of every column."""
    found = plain(rows)
    asks = str(sys._getframe(1).f_globals.get("__name__"))
    if found is None or not _is_made_up(rows) or asks.partition(".")[0] == "datasets":
        return found
    return _every_feature()(found)


@functools.cache
def _every_feature() -> Any:
    library: Any = sys.modules["datasets"]

    class Features(library.Features):  # type: ignore[misc]  # a class that is imported later
        def __missing__(self, column: str) -> Any:
            made = _value(column)
            if isinstance(made, int):
                missing.note(f"column {column} of a made-up data set: {_CLASSES} classes")
                return library.ClassLabel(num_classes=_CLASSES)
            return library.Dataset.from_dict({column: [made]}).features[column]

    return Features


def _each(plain: Any, rows: Any) -> Any:
    """As ``iter(rows)``."""
    if not _is_made_up(rows) or _mapping:
        return plain(rows)
    return (_Row(row) if type(row) is dict else row for row in plain(rows))


def _several(plain: Any, rows: Any, keys: Any) -> Any:
    """As the method that data loaders call."""
    found = plain(rows, keys)
    return list(map(_Row, found)) if _is_made_up(rows) else found


def _asked(plain: Any, row: Any, column: str) -> Any:
    """As a column of the argument of a mapped function: one row, or several."""
    if column in row.data or not _mapping:
        return plain(row, column)
    one = type(row).__name__ == "LazyRow"
    made = _value(column)
    return made if one else [made] * row.pa_table.num_rows


STAND_INS = (
    StandIn("datasets", "load_dataset", _made),
    StandIn("datasets", "load_from_disk", _made),
)
