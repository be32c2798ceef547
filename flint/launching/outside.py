"""Keeping a captured program from reaching other machines.

The idea: programs download files from hubs and write to experiment trackers.  A connection to
another machine fails as on a machine without a network, which such code can handle; each refusal is
counted with the program's line.

    with kept_inside(allow=frozenset()): socket.create_connection(("hub.example", 443))   # OSError

MPI without its launcher has one process; a program that uses it is told so in a warning.
"""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

from flint.capturing.user_frames import running_line, short_path
from flint.host.imports import watch_imports
from flint.launching.notes import noted

#: Variables that tell libraries, according to their documentation, that there is no network.
_OFFLINE = {"HF_HUB_OFFLINE": "1", "WANDB_MODE": "disabled"}
_HERE = frozenset(("localhost", "", socket.gethostname()))


@contextmanager
def kept_inside(allow: Collection[str]) -> Iterator[None]:
    """Refuse connections to other machines inside this context, unless they are allowed."""
    if "network" in allow:
        yield
        return
    for name, value in _OFFLINE.items():
        os.environ.setdefault(name, value)
    kind: Any = socket.socket
    connect, connect_ex, look_up = kind.connect, kind.connect_ex, socket.getaddrinfo

    def guarded(self: Any, address: Any) -> None:
        if not _is_here(address):
            raise _refusal(address)
        connect(self, address)

    def guarded_ex(self: Any, address: Any) -> Any:
        return connect_ex(self, address) if _is_here(address) else _refusal(address).errno

    def guarded_look_up(host: Any, *args: Any, **kwargs: Any) -> Any:
        if not _is_here((host,)):
            refusal = _refusal((host,))
            raise socket.gaierror(socket.EAI_FAIL, refusal.strerror)
        return look_up(host, *args, **kwargs)

    kind.connect, kind.connect_ex, socket.getaddrinfo = guarded, guarded_ex, guarded_look_up
    try:
        yield
    finally:
        kind.connect, kind.connect_ex, socket.getaddrinfo = connect, connect_ex, look_up


def watch_mpi(world: int) -> None:
    """Note that MPI, if the program imports it, does not know the cluster."""
    words = f"mpi4py is imported: it has one process, not the cluster's {world:,} ranks"
    if world > 1:
        watch_imports({"mpi4py.MPI": lambda: noted.update((words,))})


def _is_here(address: Any) -> bool:
    """Whether an address belongs to this machine; a path is a local socket."""
    if not isinstance(address, tuple):
        return True
    host = address[0].decode() if isinstance(address[0], bytes) else address[0]
    if host is None or host in _HERE:
        return True
    try:
        found = ipaddress.ip_address(host)
    except ValueError:
        return False
    return found.is_loopback or found.is_unspecified


def _refusal(address: Any) -> OSError:
    file, line = running_line()
    at = f" at {short_path(file)}:{line}" if file else ""
    noted[f"a connection to {address[0]}{at} is refused (--allow network permits it)"] += 1
    return OSError(errno.ENETUNREACH, "no network in a capture (flint run --allow network)")
