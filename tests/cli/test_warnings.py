"""How commands print the warnings of a workload."""

from __future__ import annotations

from flint.cli.shared import print_warnings


def printed(capsys, warnings: dict[str, int]) -> list[str]:
    print_warnings(warnings)
    return capsys.readouterr().err.splitlines()


def test_the_most_frequent_comes_first(capsys) -> None:
    assert printed(capsys, {"one": 1, "many": 5}) == [
        "flint: warning: many (5 times)",
        "flint: warning: one",
    ]


def test_a_few_lines_are_shown_one_by_one(capsys) -> None:
    warnings = {f"a value is read at train.py:{line}: assumed": 1 for line in range(4)}
    assert printed(capsys, warnings) == [f"flint: warning: {text}" for text in warnings]


def test_many_lines_with_the_same_warning_are_one(capsys) -> None:
    warnings = {f"a value is read at train.py:{line}: assumed": line for line in range(1, 8)}
    warnings |= {"a value is read at train.py:1: refused": 1}
    assert printed(capsys, warnings) == [
        "flint: warning: a value is read at train.py:7, train.py:6, train.py:5 and 4 more lines: "
        "assumed (28 times)",
        "flint: warning: a value is read at train.py:1: refused",
    ]
