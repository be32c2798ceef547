"""Lists of op names, written as text.

The idea: rules that many ops share are tables of names, which read best as words on lines.

    >>> names("add subtract", "multiply")
    ('add', 'subtract', 'multiply')
"""

from __future__ import annotations


def names(*lines: str) -> tuple[str, ...]:
    """The words of ``lines``, in order."""
    return tuple(word for line in lines for word in line.split())
