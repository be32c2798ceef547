"""The command line: one file per command, one place for errors.

The idea: commands raise; ``main`` turns what they raise into one line on stderr and an exit status
(2 for usage, 1 for failure, 130 for Ctrl-C, 143 for SIGTERM, 129 for SIGHUP).  ``--debug`` shows
the traceback.  Results go to stdout, everything else to stderr; ``--json`` makes stdout
machine-readable.
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import io
import os
import sys
import traceback
from collections.abc import Collection, Iterable

import typer

from flint import registry
from flint.cli.command import Command
from flint.errors import FlintError, UsageError
from flint.host import interrupts
from flint.host.environment import DISTRIBUTION, import_numpy, installed_version, refuse_namesake
from flint.host.temporary import of_no_file

#: The exit status that typer gives a command after Ctrl-C.
_INTERRUPTED = 130

_HELP = "Turn model code and saved StableHLO/HLO into per-rank workload graphs and Chakra traces."

#: Shown below the list of commands; the mark stops typer from joining its lines.
_FIRST_STEPS = """\b
First steps:
  flint capture train.py:step --mesh 64,8 -o out/
  flint run --world 512 -o out/ -- torchrun train.py     (a whole program)
  flint check out/
  flint inspect out/
  flint simulate out/ --system dgx-h100"""

#: Every command and what it does, in the order of ``flint --help``.  Command NAME is the function
#: ``NAME_command`` of the module NAME of this package.
COMMANDS = {
    "capture": "Turn model code into a workload folder with execution traces.",
    "run": "Run a training program up to its step, and capture the step.",
    "convert": "Turn a saved program, or profiles, into a workload folder.",
    "inspect": "Show what is in a workload: ops, work, collectives, loops.",
    "check": "Check that consumers can run the traces.",
    "diff": "Compare two workloads.",
    "validate": "Compare a capture with traces of a real run.",
    "simulate": "Simulate a step: time, exposed communication, memory.",
    "explain": "Explain a step: where its time goes, and what would help.",
    "sweep": "Simulate many meshes and systems, and find the best.",
    "targets": "List the devices that the compilers can compile for.",
    "calibrate": "Fit an accelerator's curves to measured kernels.",
    "microbench": "Time the kernels of a workload on this machine's device.",
    "systems": "List the known clusters, each figure with its source.",
}

#: Commands whose modules do not import numpy; they do it themselves, later.
_WITHOUT_NUMPY = frozenset({"sweep"})
#: Commands that end with a program's command line: its options are its own, also without ``--``.
_WITH_A_PROGRAM = frozenset({"run"})
#: Commands that soon write traces.
_WRITING = frozenset({"convert"})


def application(commands: Iterable[str] = COMMANDS) -> typer.Typer:
    """The command line with some of its commands, which saves the imports of the others."""
    app = typer.Typer(
        name="flint",
        help=_HELP,
        epilog=_FIRST_STEPS,
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )
    app.callback()(_options)
    for name in commands:
        module = importlib.import_module(f"flint.cli.{name}")
        add = app.command(
            name,
            cls=Command,
            short_help=COMMANDS[name],
            context_settings={"allow_interspersed_args": name not in _WITH_A_PROGRAM},
        )
        add(getattr(module, f"{name}_command"))
    return app


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"{DISTRIBUTION} {installed_version(DISTRIBUTION)}")
        raise typer.Exit


def _options(
    debug: bool = typer.Option(False, "--debug", help="Show tracebacks of errors."),
    version: bool = typer.Option(
        False, "--version", callback=_show_version, is_eager=True, help="Show the version."
    ),
) -> None:
    """From model code and saved StableHLO/HLO to per-rank workload graphs and Chakra traces."""
    del version
    del debug  # read from the arguments by ``main``, which must know it before parsing can fail


#: Options whose value may be left out, and the value that they then get; typer needs one.
_ALONE = {("sweep", "--ray"): "local"}


def _with_values(arguments: list[str]) -> list[str]:
    """The arguments, with values filled in where they were left out."""
    command = arguments[0]
    found: list[str] = []
    for argument, following in zip(arguments, [*arguments[1:], "-"], strict=True):
        found.append(argument)
        alone = _ALONE.get((command, argument))
        if alone is not None and following.startswith("-"):
            found.append(alone)
    return found


def _open_standard_streams() -> None:
    """Point closed standard streams at the null device: else the next opened file would take their
    number.
    """
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        continue
    os.close(number)
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115


def _buffer_standard_output() -> None:
    """Make writes to a full disk raise: unbuffered (``PYTHONUNBUFFERED``), Python drops the rest of
    a partial write.
    """
    out = sys.stdout
    if isinstance(getattr(out, "buffer", None), io.RawIOBase):
        sys.stdout = open(  # noqa: SIM115
            out.fileno(), "w", buffering=1, encoding=out.encoding, errors=out.errors, closefd=False
        )


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and leave the process with its exit status."""
    _open_standard_streams()
    _buffer_standard_output()
    interrupts.install_handler()
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    # What follows -- is another program's command line.
    end = arguments.index("--") if "--" in arguments else len(arguments)
    own, others = arguments[:end], arguments[end:]
    debug = "--debug" in own
    # Anywhere in the line: it is an option of every command.
    arguments = [argument for argument in own if argument != "--debug"] + others
    sys.exit(_run(arguments, debug))


def _commands_for(first: str) -> Collection[str]:
    """The commands to import for the first argument."""
    if first == "--version":
        return ()
    return (first,) if first in COMMANDS else COMMANDS


def _run(arguments: list[str], debug: bool) -> int:
    if not arguments:
        _run(["--help"], debug)
        return UsageError.exit_status
    try:
        os.getcwd()
    except OSError:
        return _say("the current folder has been removed: change to one that exists", 1, debug)
    try:
        refuse_namesake()
        named = _commands_for(arguments[0])
        if named and arguments[0] not in _WITHOUT_NUMPY:
            import_numpy()
        if named and arguments[0] in _WRITING:
            registry.converter("chakra-ahead")()
        app = application(named)
        arguments = _with_values(arguments)
        status = app(args=arguments, prog_name="flint", standalone_mode=False)
        sys.stdout.flush()
        if status == _INTERRUPTED:
            return _interrupted(debug)
        return status if isinstance(status, int) else 0
    except (typer.Abort, KeyboardInterrupt):
        return _interrupted(debug)
    except Exception as error:
        return _interrupted(debug) if interrupts.heard() else _failed(error, debug)
    except SystemExit as error:  # Flint raises exceptions of other kinds
        if isinstance(error.__context__, BrokenPipeError):  # typer turns it into this
            return _reader_gone()
        return _say(f"{_exited(error)}: a step must return", 1, debug)


def _exited(error: SystemExit) -> str:
    from flint.capturing.user_frames import user_frame  # rarely needed

    where = user_frame(error)
    at = f" at {where}" if where else ""
    return f"the step's own code exited the process{at} (SystemExit: {error})"


def _failed(failure: Exception, debug: bool) -> int:
    """Print one line about what went wrong; returns the exit status."""
    try:
        raise failure
    except typer.TyperException as error:
        text = error.format_message().rstrip(".")
        context = getattr(error, "ctx", None)
        hint = f" (see {context.command_path} --help)" if context is not None else ""
        return _say(f"{text}{hint}", error.exit_code, debug)
    except typer.Exit as error:
        return error.exit_code
    except FlintError as error:
        return _say(str(error), error.exit_status, debug)
    except BrokenPipeError:
        return _reader_gone()
    except MemoryError:
        return _say("out of memory", 1, debug)
    except OSError as error:
        if not error.filename:
            return _say(of_no_file(error), 1, debug)
        full = error.errno == errno.ENOSPC
        text = "the disk is full" if full else error.strerror or str(error)
        return _say(f"{error.filename}: {text}", 1, debug)
    except Exception as error:
        # A bug in Flint: one line that says so, and how to see more.
        return _say(
            f"internal error: {type(error).__name__}: {error} (--debug shows where; please "
            "report it)",
            1,
            debug,
        )


def _interrupted(debug: bool) -> int:
    status, why = interrupts.ending()
    return _say(why, status, debug)


def _reader_gone() -> int:
    """Nobody reads stdout any more: write nothing more, and flush nothing at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 1


def _say(text: str, status: int, debug: bool) -> int:
    if debug and sys.exc_info()[0] is not None:
        traceback.print_exc()
    with contextlib.suppress(OSError):  # stderr is closed too; the exit status remains
        sys.stderr.write(f"flint: {' '.join(text.split())}\n")
    return status
