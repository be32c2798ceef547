"""Programs of ranks whose traces are missing: they only respond to the others.

answering_ranks(programs, 8, notes)     # the ranks that no program has
"""

from __future__ import annotations

from collections.abc import Sequence

from flint.graph.communication import Communication
from flint.graph.graph import NodeKind
from flint.mesh.groups import Groups
from flint.post_execution.communications import Communications
from flint.post_execution.exchanges import Exchange
from flint.post_execution.meetings import meet
from flint.post_execution.untraced_ranks import answering
from flint.workload.programs import Program

#: Execution traces hold one step, so there is no other to choose.
_HINT = "give traces of one step of one run"


def answering_ranks(
    programs: Sequence[Program], world: int, notes: dict[str, int]
) -> list[Program]:
    """Programs of the ranks that none of these have.

    Args:
        programs: those of the ranks with a trace.
        world: number of ranks.
        notes: a note on the ranks without a trace is added here.

    Raises:
        FlintError: the ranks with traces do not fit together.
    """
    if sum(program.ranks.size for program in programs) == world:
        return []
    groups: dict[tuple[int, ...], Groups] = {}
    exchanges: dict[int, list[Exchange]] = {}
    for program in programs:
        graph = program.graph
        talks = graph.detail[graph.kind == NodeKind.COMMUNICATION].tolist()
        for rank in program.ranks.array().tolist():
            seen = [_seen(item, rank, groups) for item in graph.tables.communications]
            exchanges[rank] = [seen[number] for number in talks]
    described = Communications(world, groups)
    return answering(meet(exchanges, hint=_HINT), sorted(exchanges), described, notes)


def _seen(item: Communication, rank: int, groups: dict[tuple[int, ...], Groups]) -> Exchange:
    """A communication as a rank sees it; the groups of collectives are added to ``groups``."""
    if item.permutation is not None:
        pair = item.permutation
        sends = item.kind == "send"
        ends = (rank, int(pair.target[rank])) if sends else (int(pair.source[rank]), rank)
        return Exchange(item.kind, ends, item.operand_bytes or item.result_bytes, "")
    assert item.groups is not None
    members = tuple(item.groups.members(rank).tolist())
    groups.setdefault(members, item.groups)
    return Exchange(item.kind, members, item.operand_bytes, "")
