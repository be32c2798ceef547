"""What was assumed or refused for a program, counted.

The idea: texts that become warnings.  A program's other processes (workers that load data) are
copies of it, or start anew, and end by being killed: the first time that one of them counts a text,
it also writes it into a file, which the program's own process reads.

    noted["a connection to hub.example is refused"] += 1
    noted.of_all_processes(folder)          # {"a connection to hub.example is refused": 1}
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

_FILE = "noted"


class Notes(Counter[str]):
    """Texts and how often each applies."""

    _file: Path | None = None

    def keep_in(self, folder: Path | None) -> None:
        """Write what is new from now on into a folder; None: into none."""
        self._file = None if folder is None else folder / _FILE

    def __setitem__(self, text: str, count: int) -> None:
        new = text not in self
        super().__setitem__(text, count)
        if new and self._file is not None:
            with self._file.open("a", encoding="utf-8") as file:
                file.write(json.dumps(text) + "\n")

    def of_all_processes(self, folder: Path) -> Counter[str]:
        """The counts of this process, and 1 for each other process that wrote a text."""
        file = folder / _FILE
        written = file.read_text(encoding="utf-8").splitlines() if file.exists() else ()
        return Counter(dict(self)) + Counter(map(json.loads, written))  # other threads go on


noted = Notes()
