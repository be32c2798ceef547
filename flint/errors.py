"""The errors that Flint raises on purpose.

The idea: every error that a user can cause (a wrong file, a mesh that does not divide, a full disk)
is one of two exceptions whose text is one line: what, where, what to do.  The command line prints
that line and exits with the class's status; any other exception is a bug and is reported as one.

    raise FlintError("no trip count for the loop at model.py:31: give --trip-count N")
"""

from __future__ import annotations


class FlintError(Exception):
    """Something in the input or the machine prevents the result; the command line exits with 1."""

    exit_status = 1


class NoProgramError(FlintError):
    """A profile of JAX's kind does not contain the program that ran."""


class NoTraceError(FlintError):
    """A JSON or CSV file holds something else than a trace."""


class UsageError(FlintError):
    """The request is wrong (an unknown option value, a mesh that does not divide): exit 2."""

    exit_status = 2
