"""The ranks among which a communication takes place, as text.

partners(communication, Mesh((64, 8), ("data", "model")))      # "data"
"""

from __future__ import annotations

from flint.graph.communication import Communication
from flint.mesh.group_names import group_name, permutation_name
from flint.mesh.mesh import Mesh


def partners(item: Communication, mesh: Mesh) -> str:
    """The ranks among which a communication takes place."""
    if item.permutation is not None:
        return permutation_name(item.permutation, mesh)
    return group_name(item.groups, mesh) if item.groups is not None else "unknown"
