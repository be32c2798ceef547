"""A command whose options mean what they say: none is given twice, and numbers are numbers.

app.command("capture", cls=Command)(capture_command)
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from typer.core import TyperCommand, TyperOption

from flint.cli.parsing import WRITTEN
from flint.cli.refusals import refuse_losses
from flint.errors import UsageError

#: What the parser calls types -> what help and messages call them.
_PLAIN = {"int range": "int", "float range": "float"}


class Command(TyperCommand):
    """As typer's, but the last of several values does not silently win."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """As typer's."""
        super().__init__(*args, **kwargs)
        for option in self.params:
            option.type.name = _PLAIN.get(option.type.name, option.type.name)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the command's arguments.

        Raises:
            UsageError: an option with one value has several, or a number is none.
        """
        _, _, given = self.make_parser(ctx).parse_args(args=list(args))
        for option in self.params:
            if not isinstance(option, TyperOption) or option.multiple or option.is_flag:
                continue
            if given.count(option) > 1:
                raise UsageError(f"{option.opts[-1]} is given more than once: it has one value")
        rest = super().parse_args(ctx, args)
        for option in self.params:
            value = ctx.params.get(option.name)
            if isinstance(value, float) and math.isnan(value):
                raise UsageError(f"{option.opts[-1]} nan: expected a number")
        written = ctx.meta.get(WRITTEN, {})
        names = {option.name: option.opts[-1] for option in self.params}
        read = [value for name, value in ctx.params.items() if name not in written]
        refuse_losses({names[name]: path for name, path in written.items()}, _paths(read))
        return rest


def _paths(values: Iterable[Any]) -> Iterator[Path]:
    """Those of the values of options and arguments that may be paths."""
    for value in values:
        for item in value if isinstance(value, (list, tuple)) else (value,):
            if item and isinstance(item, (str, Path)):
                yield Path(item)
