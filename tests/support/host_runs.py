"""Steps that ran for real on host devices: their profiles, and which collectives ran.

    runs = HostRuns(tmp_path_factory)
    runs["flint.models.jax.llama3:train_tiny"]    # folder with the profile of two runs
    runs.collectives("flint.models.jax.llama3:train_tiny")

One process runs all steps that a worker asks for; workers share what each has run.
"""

from __future__ import annotations

import collections
import json
import math
import re
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np

from tests.support.children import child_environment
from tests.support.shared import once

KINDS = ("all-gather", "all-reduce", "all-to-all", "collective-permute", "reduce-scatter")
BYTES = {"f32": 4, "bf16": 2, "s32": 4, "u32": 4, "pred": 1, "f16": 2, "s64": 8}
TYPE = re.compile(r"(\w+)\[([\d,]*)\]")
GROUPS = re.compile(
    r"replica_groups=(\{(?:\{[\d,]+\},?)*\}|\[[\d,]+\]<=\[[\d,]+\](?:T\([\d,]+\))?)"
)
MESH = re.compile(
    r"replica_groups=mesh\[([^\]]*)\](?:, device_ids=\(\[([\d,]+)\]T\(([\d,]+)\)\))? \{([^}]*)\}"
)
AXIS = re.compile(r"'(\w+)'(?:=(\d+))?(?::\((\d+)\)(\d+))?")
PAIRS = re.compile(r"source_target_pairs=(\{(?:\{[\d,]+\},?)*\})")
INSTRUCTION = re.compile(r"%?([\w.\-]+) = (\(.*?\)|\S+) (\w[\w\-]*)\(")


def numbers(text):
    return [int(number) for number in text.split(",")]


def along_axes(mesh, dims, order, axes):
    """Groups along axes of a mesh: ``'a'=4,'b'=2`` and ``'a'`` or, of a part, ``'a':(2)2``.

    The mesh's devices are in order, or (dims, order) an iota of other dims transposed.
    """
    sizes = {name: int(size) for name, size, _, _ in AXIS.findall(mesh)}
    parts = {name: (1, size) for name, size in sizes.items()}
    along = []
    for name, _, before, size in AXIS.findall(axes):
        assert name not in along
        along.append(name)
        if size:
            parts[name] = int(before), int(size)
    shape, grouped = [], []
    for name, total in sizes.items():
        before, size = parts[name]
        if name in along:
            grouped.append(len(shape) + 1)
        shape += [before, size, total // before // size]
    devices = np.arange(math.prod(shape))
    if dims:
        devices = devices.reshape(numbers(dims)).transpose(numbers(order))
    devices = devices.reshape(shape)
    members = math.prod(shape[dim] for dim in grouped)
    rows = np.moveaxis(devices, grouped, range(-len(grouped), 0)).reshape(-1, members)
    return sorted(sorted(row) for row in rows.tolist())


def members(line, devices):
    """Groups of a collective, or pairs of a permute, as sorted lists."""
    found = PAIRS.search(line)
    if along := MESH.search(line):
        return along_axes(*along.groups())
    text = found[1] if found else GROUPS.search(line)[1]
    if text.startswith("["):
        shape, _, rest = text[1:].partition("]<=[")
        dims, _, order = rest.partition("]")
        devices = np.arange(math.prod(numbers(dims))).reshape(numbers(dims))
        if order:
            devices = devices.transpose(numbers(order[2:-1]))
        return sorted(sorted(row) for row in devices.reshape(numbers(shape)).tolist())
    lists = [numbers(part) for part in re.findall(r"\{([\d,]+)\}", text)]
    return sorted(lists) if found else sorted(map(sorted, lists or [range(devices)]))


def collectives(hlo):
    """Instruction -> (kind, groups as text, bytes of its results)."""
    found = {}
    devices = int(re.search(r"num_partitions=(\d+)", hlo)[1])
    for line in hlo.splitlines():
        match = INSTRUCTION.search(line)
        if match and match[3] in KINDS:
            parts = TYPE.findall(match[2])
            size = [math.prod(map(int, filter(None, dims.split(",")))) for _, dims in parts]
            item = [BYTES[kind] for kind, _ in parts]
            size = sum(a * b for a, b in zip(size, item, strict=True))
            found[match[1]] = match[3], str(members(line, devices)), size
    return found


def collectives_of_a_run(folder):
    """[[kind, groups or pairs, calls, result bytes], ...] of device 0 in the first of two runs.

    The profiler says which thunks ran and how often; groups and sizes stand in the executable's HLO
    under a thunk's name.
    """
    known = collectives((folder / "module.txt").read_text())
    totals = collections.defaultdict(lambda: [0, 0])
    for name in filter(known.__contains__, executed_ops(folder / "profile")):
        kind, groups, size = known[name]
        totals[kind, groups][0] += 1
        totals[kind, groups][1] += size
    return [[*key, *total] for key, total in totals.items()]


def programs_of_a_run(folder):
    """[(module, {(kind, groups): [calls, result bytes]}), ...] of the programs that several devices
    ran, in the order in which device 0 began them, of a step that ran twice: both runs.

    Programs of one name are told apart by the names of their instructions.
    """
    modules = collections.defaultdict(list)
    for file in sorted((folder / "modules").glob("*.txt")):
        text = file.read_text()
        if "num_partitions=" in text:
            name = re.match(r"HloModule ([^\s,]+)", text)[1]
            modules[name].append((set(re.findall(r"%?([\w.\-]+) = ", text)), collectives(text)))
    [file] = (folder / "profile").glob("**/*.xplane.pb")
    begun, names, ran = {}, {}, collections.defaultdict(list)
    devices = collections.defaultdict(set)
    for plane in jax.profiler.ProfileData.from_file(str(file)).planes:
        for line in plane.lines:
            for event in line.events:
                stats = dict(event.stats)
                if "hlo_op" not in stats or event.name.startswith("end:"):
                    continue
                run, device = int(stats["run_id"]), int(stats["device_ordinal"])
                devices[run].add(device)
                if device == 0:
                    begun[run] = min(begun.get(run, math.inf), event.start_ns)
                    names[run] = str(stats["hlo_module"])
                    ran[run].append(str(stats["hlo_op"]))
    found = []
    for run in sorted(begun, key=begun.get):
        if len(devices[run]) > 1:
            known = next(known for own, known in modules[names[run]] if {*ran[run]} <= own)
            totals = collections.defaultdict(lambda: [0, 0])
            for op in filter(known.__contains__, ran[run]):
                kind, groups, size = known[op]
                totals[kind, groups][0] += 1
                totals[kind, groups][1] += size
            found.append((names[run], dict(totals)))
    return found


def executed_ops(folder):
    """Names of the ops that device 0 executed in the first run, once per execution."""
    [file] = folder.glob("**/*.xplane.pb")
    by_run = collections.defaultdict(list)
    for plane in jax.profiler.ProfileData.from_file(str(file)).planes:
        for line in plane.lines:
            for event in line.events:
                stats = dict(event.stats)
                own = "hlo_op" in stats and int(stats["device_ordinal"]) == 0
                if own and not event.name.startswith("end:"):
                    by_run[int(stats["run_id"])].append(str(stats["hlo_op"]))
    return by_run[min(by_run)]


class HostRuns:
    """Profiles by ``module:attribute`` of a step."""

    def __init__(self, factory):
        self._factory, self._process = factory, None

    def __getitem__(self, place):
        """Folder of the profile of two runs of a step."""
        return self._folder(place) / "profile"

    def collectives(self, place):
        return collectives_of_a_run(self._folder(place))

    def programs(self, place):
        """What the programs of a step that calls several did, in order (``programs_of_a_run``)."""
        return programs_of_a_run(self._folder(f"{place} called"))

    def profile_of_calls(self, place):
        """Folder of the profile of two runs of a step that calls several programs."""
        return self._folder(f"{place} called") / "profile"

    def _folder(self, place):
        name = re.sub(r"\W+", "-", place)
        return once(self._factory, name, lambda folder: self._run(place, folder))

    def _run(self, place, folder):
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, str(Path(__file__).with_name("host_devices.py"))],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=child_environment(16),
            )  # fmt: skip
        self._process.stdin.write(f"{folder} {place}\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer and json.loads(answer) == "done", json.loads(answer or '"it ended"')

    def close(self):
        if self._process is not None:
            self._process.stdin.close()
            self._process.wait()
            self._process.stdout.close()
