"""Spare processes for what a warm process forks: another one forks them, and tells how they ended.

A capture in a fork of a process with JAX starts XLA's partitioner, which imports longer than it
works.  A fork of the process with JAX cannot become one: JAX has answered XLA's questions there,
and a spare one that it had forked early would not be a child of what asks for it.

    place = lend(prepare)           # early: a child of this process, prepared, waits there
    spare = borrow(place)           # in any process, as from ``spare_process.prepare``
"""

from __future__ import annotations

import contextlib
import io
import os
import signal
import socket

from flint.host import spare_process
from flint.host.child_processes import end_with_parent, fork


class Lent(spare_process.Spare):
    """A spare process that another one waits for: the status comes through a pipe."""

    def __init__(self, pid, control, stdin, told):
        super().__init__(pid, control, stdin)
        self._told = told
        os.set_blocking(told, False)

    def poll(self):
        """Its status if it has ended."""
        if self._status is None:
            try:
                self._status = int(os.read(self._told, 16) or -signal.SIGKILL)
            except BlockingIOError:
                return None
        return self._status


def lend(prepare):
    """The address of a child of this process that forks on demand, after ``prepare()``."""
    known = socket.socket(socket.AF_UNIX)
    known.bind("")  # a name that the system chooses
    known.listen(64)
    address = known.getsockname()
    parent = os.getpid()
    if not fork():
        try:
            end_with_parent(parent)
            prepare()
            while True:
                _fork(known)
        finally:
            os._exit(1)
    known.close()
    return address


def _fork(known):
    """One more, which waits for its order, and a process between that waits for it."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:  # those between that have ended
            pass
    asked, _ = known.accept()
    _, given, _, _ = socket.recv_fds(asked, 1, 3)
    order, entry, telling = given
    lender = os.getpid()
    if fork():
        asked.close()
        for descriptor in given:
            os.close(descriptor)
        return
    try:
        end_with_parent(lender)
        known.close()
        between = os.getpid()
        process = fork()
        if not process:
            asked.close()
            os.close(telling)
            status = 1
            try:
                status = spare_process._become(order, entry, between)
            finally:
                os._exit(status)
        os.close(order)
        os.close(entry)
        asked.send(str(process).encode())
        asked.close()
        status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        os.write(telling, str(status).encode())
    finally:
        os._exit(0)


def borrow(address):
    """A spare process from there."""
    (order, control), (entry, stdin), (told, telling) = os.pipe(), os.pipe(), os.pipe()
    try:
        with socket.socket(socket.AF_UNIX) as lender:
            lender.connect(address)
            socket.send_fds(lender, [b"?"], [order, entry, telling])
            process = int(lender.recv(16))
    finally:
        for descriptor in (order, entry, telling):
            os.close(descriptor)
    return Lent(process, control, io.FileIO(stdin, "wb"), told)
