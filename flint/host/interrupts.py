"""Ctrl-C, SIGTERM and SIGHUP end the work: children first, and half-written files are removed.

The idea: all three raise ``KeyboardInterrupt``, so that code that cleans up after Ctrl-C also does
so for a batch system, ``docker stop`` and a closed terminal.  Python drops exceptions from
callbacks of its garbage collector, weak references and finalizers, and C++ extension modules may
crash if an exception is raised while they are loaded.  A signal that arrives there is raised again,
until it ends the work.

    install_handler()
    ...
    status, text = ending()         # 143, "ended by SIGTERM"
"""

from __future__ import annotations

import math
import signal
import sys
import threading
import time
from importlib.machinery import ExtensionFileLoader
from types import CodeType, FrameType

#: Functions that must not be interrupted: they load an extension module.
_LOADING = frozenset(
    function.__code__
    for function in (ExtensionFileLoader.create_module, ExtensionFileLoader.exec_module)
)
#: Seconds between attempts; a short command has ended in ten times as long.
_AGAIN = 0.005
#: Signals that end a process, other than Ctrl-C.
ENDING = (signal.SIGTERM, signal.SIGHUP)
#: A process may get them twice, through its own id and its group's (``timeout``): for this many
#: seconds a second one does not interrupt the work that the first one has begun.
_SAME = 5.0

#: The default handlers of a process.
_DEFAULT = (signal.default_int_handler, signal.SIG_DFL)

_ended_by: int = signal.SIGINT
_heard = False


def ending() -> tuple[int, str]:
    """The exit status of interrupted work (128 plus the signal's number, as in shells), and the
    reason.
    """
    if _ended_by == signal.SIGINT:
        return 128 + _ended_by, "interrupted"
    return 128 + _ended_by, f"ended by {signal.Signals(_ended_by).name}"


def heard() -> bool:
    """Whether a signal to end has come since ``install_handler``: extension modules turn exceptions
    raised inside them into their own errors, and such a failure is due to the signal.
    """
    return _heard


def default_handlers() -> None:
    """In a child that has inherited the handlers of its parent: restore the default handlers."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in ENDING:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)


def install_handler() -> None:
    """From now on raise Ctrl-C again where it was lost, and later where it would do harm.

    SIGTERM and SIGHUP are raised in the same way.  Ignored signals (``nohup``) and existing
    handlers are kept; does nothing outside the main thread.
    """
    global _heard
    _heard = False
    free = [number for number in (signal.SIGINT, *ENDING) if signal.getsignal(number) in _DEFAULT]
    if threading.current_thread() is not threading.main_thread() or not free:
        return
    show = sys.unraisablehook
    main_thread = threading.main_thread().ident
    assert main_thread is not None
    raised = 0
    insisting_since = -1
    since = -math.inf

    def interrupt(number: int, frame: FrameType | None) -> None:
        global _heard
        nonlocal raised
        _heard = True
        if _within(_LOADING, frame):
            insist(number)
            return
        raised += 1
        signal.default_int_handler(number, frame)

    def end(number: int, frame: FrameType | None) -> None:
        global _ended_by
        nonlocal since
        if time.monotonic() - since < _SAME and insisting_since != raised:
            return
        _ended_by, since = number, time.monotonic()
        interrupt(number, frame)

    def hook(lost: sys.UnraisableHookArgs) -> None:
        if isinstance(lost.exc_value, KeyboardInterrupt):
            insist(_ended_by)
        else:
            show(lost)

    def insist(number: int) -> None:
        nonlocal insisting_since
        if insisting_since != raised:
            insisting_since = raised
            threading.Thread(target=raise_anew, args=(raised, number), daemon=True).start()

    def raise_anew(so_far: int, number: int) -> None:
        # In the hook it would be lost again; and a signal that comes just before the main thread
        # waits for something does not end that: one of the next does.
        avoided = _LOADING | {hook.__code__}
        while raised == so_far:
            if not _within(avoided, sys._current_frames().get(main_thread)):
                signal.pthread_kill(main_thread, number)
            time.sleep(_AGAIN)

    for number in free:
        signal.signal(number, interrupt if number == signal.SIGINT else end)
    sys.unraisablehook = hook


def _within(functions: frozenset[CodeType], frame: FrameType | None) -> bool:
    """Whether a frame is one of those functions, or below one."""
    while frame is not None and frame.f_code not in functions:
        frame = frame.f_back
    return frame is not None
