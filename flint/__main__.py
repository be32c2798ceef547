"""``flint`` and ``python -m flint``: the command line as a process, from its first import on."""

import os
import sys

#: Modules that must clean up at exit: Ray its processes, if any were started; Matplotlib a
#: temporary folder, if the user's own cannot be written.
_UNFINISHED = frozenset(("ray", "matplotlib"))


def main() -> None:
    """Run the command line and end the process."""
    status: int | None = None
    words = ""
    while True:  # until it has ended: Ctrl-C may come at any moment, and once more after that
        try:
            if status is None:
                status = _run()
            _end(status, words)
        except KeyboardInterrupt:
            ended, why = _interrupted()
            if status != ended:  # otherwise it has been reported
                status, words = ended, why


def _run() -> int:
    try:  # imports take a moment, so they are inside
        import gc

        # Objects from imports and readers live to the end, so collecting garbage often would find
        # none.
        gc.set_threshold(200_000)
        from flint.host import interrupts

        if _has_users_code(sys.argv[1:]):
            from flint.capturing.user_frames import crashed_line
            from flint.host.watched import watched

            ended = watched("the capture", crashed_line)
            if ended is not None:
                return ended
        interrupts.install_handler()
        from flint.cli import main as run

        run()
    except SystemExit as stopped:
        return stopped.code if isinstance(stopped.code, int) else 1
    return 0


def _has_users_code(arguments: list[str]) -> bool:
    """Whether a command runs code of the user's in its own process."""
    return next((word for word in arguments if not word.startswith("-")), "") == "capture"


def _interrupted() -> tuple[int, str]:
    """The exit status and a message; while ``flint.cli`` runs, it reports this itself."""
    ending = getattr(sys.modules.get("flint.host.interrupts"), "ending", None)
    status, why = ending() if ending is not None else (130, "interrupted")
    return status, f"flint: {why}\n"


def _end(status: int, words: str) -> None:
    import atexit
    import contextlib
    import signal

    # The rest takes no time, unless a reader of the output keeps it waiting.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    temporary = sys.modules.get("flint.host.temporary")
    if temporary is not None:
        temporary.remove_own()
    if _UNFINISHED & sys.modules.keys():
        atexit._run_exitfuncs()
    for stream, text in ((sys.stderr, words), (sys.stdout, "")):
        with contextlib.suppress(OSError):
            stream.write(text)
            stream.flush()
    # Nothing is left to do, and an orderly shutdown costs every command 30 ms, and minutes if a
    # step has started thousands of host devices.
    os._exit(status)


if __name__ == "__main__":
    main()
