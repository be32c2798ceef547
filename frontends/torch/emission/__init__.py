"""Recording -> StableHLO bytecode.

The idea: one SSA value per storage (``storages.py``), one composite per kernel
(``decompositions.py``), collectives with every rank's groups (``collectives.py``), and on each op
how it was issued (``issue.py``).

    data = emit(recording)
"""

from __future__ import annotations

from flint.frontends.torch.emission.module import Emitted, emitted
from flint.frontends.torch.recording.recording import Recording


def emit(recording: Recording, strict: bool = False) -> bytes:
    """A recording as MLIR bytecode; see ``emitted``, which also tells what was assumed."""
    return emitted(recording, strict).data


__all__ = ["Emitted", "emit", "emitted"]
