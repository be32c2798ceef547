"""Ctrl-C that ends the work: neither lost in a callback nor raised where it would crash.

The idea: Python drops what callbacks of its garbage collector, weak references and finalizers
raise, and extension modules in C++ may crash when something is raised while they are loaded.  An
interrupt that comes there is raised again, until it ends the work.

    install_handler()
"""

from __future__ import annotations

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
#: Seconds between attempts.
_AGAIN = 0.05


def install_handler() -> None:
    """From now on raise Ctrl-C again where it was lost, and later where it would do harm.

    Does nothing outside of the main thread or where the signal has a handler already.
    """
    here = threading.current_thread() is threading.main_thread()
    if not here or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return
    show = sys.unraisablehook
    main_thread = threading.main_thread().ident
    assert main_thread is not None
    raised = 0
    insisting_since = -1

    def interrupt(number: int, frame: FrameType | None) -> None:
        nonlocal raised
        if _within(_LOADING, frame):
            insist()
            return
        raised += 1
        signal.default_int_handler(number, frame)

    def hook(lost: sys.UnraisableHookArgs) -> None:
        if isinstance(lost.exc_value, KeyboardInterrupt):
            insist()
        else:
            show(lost)

    def insist() -> None:
        nonlocal insisting_since
        if insisting_since != raised:
            insisting_since = raised
            threading.Thread(target=raise_anew, args=(raised,), daemon=True).start()

    def raise_anew(so_far: int) -> None:
        # In the hook it would be lost again; and a signal that comes just before the main thread
        # waits for something does not end that: one of the next does.
        avoided = _LOADING | {hook.__code__}
        while raised == so_far:
            if not _within(avoided, sys._current_frames().get(main_thread)):
                signal.pthread_kill(main_thread, signal.SIGINT)
            time.sleep(_AGAIN)

    signal.signal(signal.SIGINT, interrupt)
    sys.unraisablehook = hook


def _within(functions: frozenset[CodeType], frame: FrameType | None) -> bool:
    """Whether a frame is one of those functions, or below one."""
    while frame is not None and frame.f_code not in functions:
        frame = frame.f_back
    return frame is not None
