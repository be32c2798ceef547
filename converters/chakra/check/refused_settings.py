"""Settings of the simulator that ASTRA-sim refuses to start with.

The idea: users may edit what Flint wrote, and ASTRA-sim checks little before it aborts: the forms
are those of its parsers (astra-network-analytical's NetworkParser.cpp, astra-sim's Sys.cc and
CollectiveImplLookup.cc, astra-memory-analytical's AnalyticalRemoteMemory.cc).

    list(refusals("network.yml", {"topology": ["Star"], ...}))  # "topology: 'Star' is none of ..."
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

_TOPOLOGIES: Final = ("Ring", "FullyConnected", "Switch")
_ALGORITHM: Final = re.compile(
    r"ring|oneRing|doubleBinaryTree|(direct|oneDirect)(-?\d+)?|halvingDoubling|oneHalvingDoubling"
)
#: Keys with one of a few values.
_WORDS: Final = {
    "scheduling-policy": ("LIFO", "FIFO", "EXPLICIT"),
    "collective-optimization": ("baseline", "localBWAware"),
}
#: No rank has remote memory, and the simulator ends at the first access to it.
NO_MEMORY: Final = "NO_MEMORY_EXPANSION"
#: Kinds of remote memory, and keys that divide: the simulator takes 0 where they are missing.
_MEMORIES: Final[Mapping[str, tuple[str, ...]]] = {
    NO_MEMORY: (),
    "PER_NPU_MEMORY_EXPANSION": ("remote-mem-bw",),
    "PER_NODE_MEMORY_EXPANSION": ("remote-mem-bw", "num-nodes", "num-npus-per-node"),
    "MEMORY_POOL": ("remote-mem-bw",),
}
#: Keys with algorithms, one for each dim.
_ALGORITHMS: Final = tuple(
    f"{kind}-implementation"
    for kind in ("all-reduce", "all-gather", "reduce-scatter", "all-to-all")
)


def refusals(name: str, content: object) -> Iterator[str]:
    """What ASTRA-sim refuses in a file of settings.

    Args:
        name: of the file, without its folder.
        content: what is in it.
    """
    read = _FILES.get(name)
    if read is None:
        return
    if isinstance(content, Mapping):
        yield from read(content)
    else:
        yield "expected keys and values"


def _network(content: Mapping[str, Any]) -> Iterator[str]:
    listed = {key: content.get(key) for key in ("topology", "npus_count", "bandwidth", "latency")}
    for key, values in listed.items():
        if not isinstance(values, list):
            yield f"{key}: expected a list, a value for each dim"
            return
    dims = len(listed["topology"] or ())
    for key, values in listed.items():
        if len(values or ()) != dims:
            yield f"{key} has {len(values or ())} dims, and topology {dims}"
    for word in listed["topology"] or ():
        if word not in _TOPOLOGIES:
            yield f"topology: {word!r} is none of {', '.join(_TOPOLOGIES)}"
    for key, above in (("npus_count", 1), ("bandwidth", 0)):
        for value in listed[key] or ():
            if not _is_number(value) or value <= above:
                yield f"{key}: {value!r} is not above {above}"
    for value in listed["latency"] or ():
        if not _is_number(value) or value < 0:
            yield f"latency: {value!r} is not a number of nanoseconds"


def _system(content: Mapping[str, Any]) -> Iterator[str]:
    for key, words in _WORDS.items():
        if key in content and content[key] not in words:
            yield f"{key}: {content[key]!r} is none of {', '.join(words)}"
    for key in _ALGORITHMS:
        values = content.get(key, [])
        for value in values if isinstance(values, list) else [values]:
            if not isinstance(value, str) or not _ALGORITHM.fullmatch(value):
                yield f"{key}: {value!r} is no algorithm of ASTRA-sim's"


def _memory(content: Mapping[str, Any]) -> Iterator[str]:
    kind = content.get("memory-type")
    if not isinstance(kind, str) or kind not in _MEMORIES:
        yield f"memory-type: {kind!r} is none of {', '.join(_MEMORIES)}"
        return
    for key in _MEMORIES[kind]:
        value = content.get(key, 0)
        if not _is_number(value) or value < 1:
            yield f"{key}: {value!r} is not above 0"
    latency = content.get("remote-mem-latency", 0)
    if kind != NO_MEMORY and (not _is_number(latency) or latency < 0):
        yield f"remote-mem-latency: {latency!r} is not a number of nanoseconds"


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


_FILES: Final[Mapping[str, Callable[[Mapping[str, Any]], Iterator[str]]]] = {
    "network.yml": _network,
    "remote_memory.json": _memory,
    "system.json": _system,
}
#: Without these files ASTRA-sim does not start.
NEEDED: Final = frozenset(_FILES)
