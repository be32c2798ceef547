"""A folder for temporary files that is removed when its process ends, even if it is killed.

The idea: a shell waits for the end of a pipe that only this process holds open, then removes the
folder.  The shell is not a child of this process, because Ray kills a worker together with its
children.

    scratch = Scratch()
    (scratch.folder / "1.out").write_text("...")
    scratch.end()
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from typing import Final

from flint.host.temporary import make_temporary_folder

#: Waits in the background for the end of its input, then removes the folder.  Processes that are
#: killed at the same moment may write a little longer.
_REMOVE: Final = """
trap '' HUP INT TERM
exec 3<&0
{ cat <&3; rm -rf "$1" || { sleep 1; rm -rf "$1"; }; } >/dev/null 2>&1 &
"""


class Scratch:
    """A new folder in the system's folder for temporary files.

    Attributes:
        folder: its path.
    """

    def __init__(self) -> None:
        self.folder = make_temporary_folder()
        read_end, self._held = os.pipe()
        try:
            with contextlib.suppress(OSError):  # no shell: only ``end`` removes it
                subprocess.run(
                    ["/bin/sh", "-c", _REMOVE, "sh", str(self.folder)],
                    stdin=read_end, check=False, start_new_session=True,
                )  # fmt: skip
        finally:
            os.close(read_end)

    def end(self) -> None:
        """Remove it now."""
        shutil.rmtree(self.folder, ignore_errors=True)
        held, self._held = self._held, -1
        if held >= 0:
            os.close(held)
