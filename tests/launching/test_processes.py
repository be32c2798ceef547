"""A function that may fork is called before a program's first thread or process."""

import subprocess
import sys
import textwrap

import pytest

from tests.support.children import HUNG, child_environment

PROGRAM = """
    import os, threading
    from concurrent.futures import ThreadPoolExecutor
    from flint.launching.processes import watch

    told = []

    def before():
        if not told:
            told.append(1)
            copy = os.fork()
            if not copy:
                os._exit(0)
            os.waitpid(copy, 0)

    watch(before)
    {first}
    print("told", len(told))
"""


@pytest.mark.parametrize(
    "first",
    [
        "threading.Thread(target=len, args=('',)).start()",
        "ThreadPoolExecutor(1).submit(len, '').result()",
        "list(ThreadPoolExecutor(2).map(len, ['', '']))",
    ],
    ids=["thread", "pool", "map of a pool"],
)
def test_whoever_is_told_before_the_first_thread_may_fork(first):
    """A pool starts threads while it holds a lock that Python takes in each fork."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(PROGRAM).format(first=first)],
        env=child_environment(), capture_output=True, text=True, timeout=HUNG, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "told 1\n"), done.stderr


WAITED_FOR = """
    import ctypes.util, subprocess
    from flint.launching import launched, processes
    from flint.launching.program import Cluster

    told = []
    processes.watch(lambda: told.append(1))
    launched.watch(Cluster(world=2, per_node=2))
    exec(compile({first!r}, "/home/train.py", "exec"))
    print("told", len(told), len(processes.started))
"""


@pytest.mark.parametrize(
    ("first", "told", "named"),
    [
        ("subprocess.run(['true'])", 0, 1),
        ("ctypes.util.find_library('dl')", 0, 0),
        ("subprocess.Popen(['true']).wait()", 1, 1),
    ],
    ids=["run", "a library", "not waited for"],
)
def test_a_process_that_is_waited_for_where_it_starts_is_no_reason_to_fork(first, told, named):
    """Whatever else of Flint's is called before it.  A search for a library trains nothing."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(WAITED_FOR).format(first=first)],
        env=child_environment(), capture_output=True, text=True, timeout=HUNG, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, f"told {told} {named}\n"), done.stderr
