"""The command line's messages when level, target and options do not fit each other."""

from __future__ import annotations

import json

import pytest

from flint.cli import main
from flint.errors import UsageError
from tests.frontends.jax.compile import steps


def said(capsys, *arguments):
    """Exit status, stdout, stderr of a command."""
    with pytest.raises(SystemExit) as left:
        main(list(map(str, arguments)))
    out, err = capsys.readouterr()
    return left.value.code, out, err


@pytest.mark.parametrize(
    ("words", "match"),
    [
        ({"level": "optimized"}, r"needs a target \(--target\); choose from: h100, "),
        ({"level": "optimized", "target": "h1000"}, r"unknown target 'h1000'; choose from: h100, "),
        ({"target": "h100"}, r"the partitioned level is the same for every target"),
        ({"level": "logical", "target": "h100"}, r"the logical level is the same"),
        (
            {"level": "final"},
            r"unknown level 'final'; choose from: logical, partitioned, optimized, auto",
        ),
        (
            {"options": {"compiler_options": {"xla_flag": "1"}}},
            r"compiler options \(xla_flag\) are for the optimized level",
        ),
    ],
)
def test_what_does_not_fit_is_refused(words, match):
    with pytest.raises(UsageError, match=match):
        steps.scan.capture(**words)


def test_targets_lists_what_is_missing(capsys):
    status, out, _ = said(capsys, "targets", "--json")
    listed = {row["name"]: row for row in json.loads(out)["targets"]}
    assert status == 0
    for row in listed.values():
        assert row["available"] == (row["missing"] == "")
        assert row["available"] or "pip install" in row["missing"]
    status, out, _ = said(capsys, "targets")
    assert all(name in out for name in listed)


@pytest.mark.parametrize("entry", ["novalue", "=1"])
def test_an_option_is_a_name_and_a_value(entry):
    from flint.cli.parsing import xla_options

    with pytest.raises(UsageError, match="expected NAME=VALUE"):
        xla_options([entry])


def test_options_may_be_written_as_flags():
    from flint.cli.parsing import xla_options

    assert xla_options(["--xla_a=true", "xla_b=x=y"]) == {"xla_a": "true", "xla_b": "x=y"}


def test_an_option_given_twice_is_refused():
    from flint.cli.parsing import xla_options

    with pytest.raises(UsageError, match="xla_a is given twice"):
        xla_options(["xla_a=1", "--xla_a=2"])
