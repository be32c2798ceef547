"""``flint`` and ``python -m flint``: the command line as a process, from its first import on."""

import os
import sys

#: Modules that leave something behind which they end at exit: Ray its processes, as far as they
#: have been started; Matplotlib a temporary folder where the user's own cannot be written.
_UNFINISHED = frozenset(("ray", "matplotlib"))


def main() -> None:
    """Run the command line and end the process."""
    status: int | None = None
    said = ""
    while True:  # until it has ended: Ctrl-C may come at any moment, and once more after that
        try:
            if status is None:
                status = _run()
            _end(status, said)
        except KeyboardInterrupt:
            ended, why = _interrupted()
            if status != ended:  # else it has been said
                status, said = ended, why


def _run() -> int:
    try:  # imports take a moment: they are in here
        import gc

        # What imports and readers make lives to the end: to look for garbage often finds none.
        gc.set_threshold(200_000)
        from flint.host import interrupts

        interrupts.install_handler()
        from flint.cli import main as run

        run()
    except SystemExit as stopped:
        return stopped.code if isinstance(stopped.code, int) else 1
    return 0


def _interrupted() -> tuple[int, str]:
    """The exit status and what to say; ``flint.cli`` says so itself while it runs."""
    ending = getattr(sys.modules.get("flint.host.interrupts"), "ending", None)
    status, why = ending() if ending is not None else (130, "interrupted")
    return status, f"flint: {why}\n"


def _end(status: int, said: str) -> None:
    import atexit
    import contextlib
    import signal

    # What is left is done in no time, unless a reader of our output keeps us waiting.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    temporary = sys.modules.get("flint.host.temporary")
    if temporary is not None:
        temporary.remove_own()
    if _UNFINISHED & sys.modules.keys():
        atexit._run_exitfuncs()
    for stream, text in ((sys.stderr, said), (sys.stdout, "")):
        with contextlib.suppress(OSError):
            stream.write(text)
            stream.flush()
    # Nothing is left to be done, and taking things down in order costs every command 30 ms, and
    # minutes where a step has started thousands of host devices.
    os._exit(status)


if __name__ == "__main__":
    main()
