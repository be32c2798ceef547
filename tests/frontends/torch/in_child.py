"""Recordings for tests: torch is changed for good by them, so each is made in a child."""

from __future__ import annotations

import dataclasses
import functools
import json

# Here, not in every child.
import flint.frontends.torch.emission
import flint.frontends.torch.session  # noqa: F401
from flint.frontends.torch import everywhere
from flint.frontends.torch.capturing import prepare
from flint.frontends.torch.evidence import Evidence
from flint.frontends.torch.recording.recording import Group, Input, Life, Op, Recording, View
from flint.host.child_processes import Limits
from flint.host.tasks import run_all
from flint.host.temporary import temporary_folder
from flint.workload.programs import Level

LIMITS = Limits(seconds=1200, memory=2**35)
_KINDS = {kind.__name__: kind for kind in (Evidence, Group, Input, Life, Op, Recording, View)}


def in_child(work, *args, **kwargs):
    """What ``work(...)`` returns in a forked child; it must be plain data or recordings."""

    def run(task, folder):
        (folder / "result").write_text(json.dumps(_plain(work(*args, **kwargs))))

    everywhere.search()
    with temporary_folder() as folder:
        return _object(json.loads((run_all(run, [0], folder, LIMITS)[0] / "result").read_text()))


def record_in_child(function, setup, shape, axes, rank=0, **options):
    """``session.record`` in a child."""
    from flint.frontends.torch.session import record

    if options.get("compile_for"):
        prepare(Level.OPTIMIZED)
    return in_child(record, function, setup, shape, axes, rank, **options)


@functools.cache
def recorded(function, setup, shape, axes, rank=0):
    """The same, once for equal arguments."""
    return record_in_child(function, setup, shape, axes, rank)


def _plain(item):
    if dataclasses.is_dataclass(item):
        fields = {f.name: _plain(getattr(item, f.name)) for f in dataclasses.fields(item)}
        return {"kind": type(item).__name__, "fields": fields}
    if isinstance(item, list | tuple):
        return {"kind": "tuple", "items": [_plain(part) for part in item]}
    if isinstance(item, dict):
        return {"kind": "dict", "items": [[_plain(key), _plain(v)] for key, v in item.items()]}
    if isinstance(item, bytes):
        return {"kind": "bytes", "hex": item.hex()}
    return item


def _object(item):
    if not isinstance(item, dict):
        return item
    if item["kind"] == "tuple":
        return tuple(_object(part) for part in item["items"])
    if item["kind"] == "dict":
        return {_object(key): _object(value) for key, value in item["items"]}
    if item["kind"] == "bytes":
        return bytes.fromhex(item["hex"])
    fields = {name: _object(value) for name, value in item["fields"].items()}
    return _KINDS[item["kind"]](**fields)
