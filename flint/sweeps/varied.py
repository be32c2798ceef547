"""One command of a program for each combination of values that vary.

The idea: ``{NAME}`` in the command stands for a value; a combination is named by its values.

    commands_of(["python", "train.py", "--tp={tp}"], {"tp": ["1", "8"]})
    # {"tp=1": ("python", "train.py", "--tp=1"), "tp=8": ("python", "train.py", "--tp=8")}
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Final

from flint.errors import UsageError

_NAME: Final = re.compile(r"\{([A-Za-z_]\w*)\}")


def values_of(texts: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """What varies, and its values, without duplicates.

    Args:
        texts: ``NAME=VALUE,VALUE`` each; those of one name belong together.

    Raises:
        UsageError: a text of another form.
    """
    found: dict[str, tuple[str, ...]] = {}
    for text in texts:
        name, equals, values = text.partition("=")
        each = tuple(value.strip() for value in values.split(","))
        if not name.isidentifier() or not equals or "" in each:
            raise UsageError(f"--vary {text}: expected NAME=VALUE,VALUE, for example tp=1,2,4")
        found[name] = tuple(dict.fromkeys((*found.get(name, ()), *each)))
    return found


def left_open(program: Sequence[str], varied: Mapping[str, Sequence[str]]) -> list[str]:
    """Names in braces that have no values, which the program gets as they are."""
    names = (name for word in program for name in _NAME.findall(word))
    return [name for name in dict.fromkeys(names) if name not in varied]


def commands_of(
    program: Sequence[str], varied: Mapping[str, Sequence[str]]
) -> dict[str, tuple[str, ...]]:
    """The commands by name; the program's own command as its name if nothing varies.

    Args:
        program: the words of a command.
        varied: for each name in braces, its values.

    Raises:
        UsageError: no word has the name in braces.
    """
    for name in varied:
        if not any(f"{{{name}}}" in word for word in program):
            raise UsageError(
                f"--vary {name}: the program's command has no {{{name}}}: write it where the value "
                f"belongs, for example --{name}={{{name}}}"
            )
    if not varied:
        return {shlex.join(program): tuple(program)}
    found = {}
    for values in product(*varied.values()):
        chosen = dict(zip(varied, values, strict=True))
        named = " ".join(f"{name}={value}" for name, value in chosen.items())
        found[named] = tuple(_filled(word, chosen) for word in program)
    return found


def _filled(word: str, chosen: Mapping[str, str]) -> str:
    """A word with values in place of their names in braces."""
    names = "|".join(map(re.escape, chosen))
    return re.sub(rf"\{{({names})\}}", lambda place: chosen[place[1]], word)
