"""Recording -> StableHLO bytecode.

The idea: one SSA value per storage (``storages.py``), one composite per kernel
(``decompositions.py``), collectives with every rank's groups (``collectives.py``), and on each op
the way it was issued (``issue.py``).

    emitted(recording).data
"""

from __future__ import annotations

from flint.frontends.torch.emission.module import Emitted, emitted

__all__ = ["Emitted", "emitted"]
