"""A program to be started: its command line, and the cluster that it sees.

The idea: everything here is a description.  Running a program and finding its step is done
elsewhere (``running.py``, and each framework's hooks).

    program = parse(["torchrun", "--nproc-per-node=8", "train.py", "--lr=3e-4"])
    cluster = cluster_of(program, world=512, per_node=8)
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from flint.capturing.request import CaptureOptions
from flint.errors import UsageError
from flint.launching.stated_values import MaskShares, Numbers
from flint.mesh.mesh import MAX_RANKS

#: Default number of ranks per host.
PER_NODE = 8
#: Devices with another number per host.
_OTHER_HOSTS = {"gb200": 4, "gb300": 4, "tpu-v4": 4, "tpu-v5e": 4, "tpu-v5p": 4, "tpu-v6e": 4}

#: Instead of a number: the loop inside of a step.
_LOOP, _CALL = "loop", "call"
#: A step's name and place, and perhaps a number.
_AT = re.compile(r"([^@]+)@([^:@]+:[0-9]+)(?::([0-9]+|loop|call))?")
#: What ``--allow`` can name.
ALLOWED = ("network", "checkpoints")


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A Python program and how it is started.

    Attributes:
        target: path of its file, or dotted name of its module.
        is_module: started as ``python -m target``.
        arguments: the program's own arguments.
        environment: variables that its launcher sets, except those of ranks.
        folder: where it is started; empty: here.
        launchers: whose variables tell each process its rank (``variables.py``).
        manager: what starts a launcher once on each host: its variables tell hosts.
        remarks: how its command was found, for a warning.
        per_node: processes on each host, if its launcher sets it.
        default_per_node: processes on each host that its launcher starts by default.
        nodes: number of hosts, if its launcher sets it.
        ranks_one: its launcher sets the variables of ranks for a single process too.
        local_rank_option: its launcher puts this option, ``=`` and the process's number on its host
            before its arguments; empty if it does not.
    """

    target: str
    is_module: bool = False
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    folder: str = ""
    launchers: tuple[str, ...] = ("torchrun",)
    manager: str = ""
    remarks: tuple[str, ...] = ()
    per_node: int | None = None
    default_per_node: int | None = None
    nodes: int | None = None
    ranks_one: bool = False
    local_rank_option: str = ""

    @property
    def is_launched(self) -> bool:
        """Whether it is known that something starts a process for each rank."""
        sure = self.ranks_one or self.manager or self.per_node
        return bool(sure) or self.launchers != ("torchrun",)

    @property
    def name(self) -> str:
        """The program's name in messages."""
        return f"-m {self.target}" if self.is_module else self.target


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """The cluster that a program sees.

    Attributes:
        world: ranks, one per device.
        per_node: ranks on each host.
        device: accelerator, as named in ``flint.cost.accelerators``; None: the framework's default.
        slices: number of slices of TPUs, or of other domains of a fast network.
    """

    world: int
    per_node: int
    device: str | None = None
    slices: int = 1

    @property
    def hosts(self) -> int:
        """Number of hosts."""
        return -(-self.world // self.per_node)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepChoice:
    """Which step is captured.

    Attributes:
        name: as shown by ``--list-steps``; None: the first that repeats.
        place: the end of its place as shown there, for several of one name; empty: any.
        number: which run of the step, from 1; 2 by default, because the first run includes one-time
            work.
        mark: how a framework recognises its end, if finding that took a run of the program.
        values: which values are assumed for unknown ones, if the default ones ended the program
            (``unknown.py``).
        kernels: packages of GPU kernels that are not installed and have stand-ins; without each of
            them, the program ended.
        once: optimizer steps in the only round of a program, which does not repeat; 0: it does.
        loop: the step is an iteration of the main loop inside of it.
        call: the step is its call alone, without those that the program repeats with it.
        unlaunched: the program's line that looks for a launcher's variables, if it runs without
            any; empty: it has them.
    """

    name: str | None = None
    place: str = ""
    number: int = 2
    mark: str = ""
    values: int = 0
    kernels: tuple[str, ...] = ()
    once: int = 0
    loop: bool = False
    call: bool = False
    unlaunched: str = ""

    @property
    def alone(self) -> bool:
        """Whether the step is in a call of one function, without those around it."""
        return self.loop or self.call

    def names(self, name: str, place: str) -> bool:
        """Whether it names a step, by its name and its place."""
        end = f"/{self.place}" if self.place else ""
        return name == self.name and f"/{place}".endswith(end)

    def __str__(self) -> str:
        """Its name as for ``--step``."""
        return f"{self.name}@{self.place}" if self.place else str(self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenStep:
    """A piece of a program that was seen to repeat, or might.

    Attributes:
        name: its name for ``--step``.
        count: how often it was seen.
        place: the program's line.
        what: a description.
        repeats: whether it can be a step by its name alone; if not, one run of it can.
        loops: it does not repeat, and a loop inside of it may.
    """

    name: str
    count: int
    place: str
    what: str
    repeats: bool = True
    loops: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramRequest:
    """A request to a framework's hooks.

    Attributes:
        program, cluster, step: see these classes.
        lists_steps: list the steps, and capture none.
        allow: real actions that the program may take, from ``ALLOWED``.
        fake_data: make up missing data.
        options: limits, and options of the walk.
        target: what the step is compiled for if the framework has the optimized level; None: the
            partitioned level.
        automatic: level auto: only if the framework's compiler is installed.
        mask_shares: how many elements masks choose whose values are not known (PyTorch).
        numbers: what lines read from tensors on the device (PyTorch).
    """

    program: Program
    cluster: Cluster
    step: StepChoice = field(default_factory=StepChoice)
    lists_steps: bool = False
    allow: frozenset[str] = frozenset()
    fake_data: bool = False
    options: CaptureOptions = field(default_factory=CaptureOptions)
    target: str | None = None
    automatic: bool = False
    mask_shares: MaskShares = field(default_factory=MaskShares)
    numbers: Numbers = field(default_factory=Numbers)


def cluster_of(
    program: Program,
    *,
    world: int | None,
    per_node: int | None,
    hosts: int | None,
    device: str | None,
    slices: int,
) -> Cluster:
    """The cluster that the command line and a program's launcher describe.

    Raises:
        UsageError: they contradict each other, or do not give the number of ranks.
    """
    if world is None:
        each = program.per_node or program.default_per_node
        if each is None:
            raise UsageError("the number of devices is unknown: give --world")
        world = each * (program.nodes or hosts or 1)
    if world > MAX_RANKS:
        raise UsageError(f"--world {world:,}: the limit is {MAX_RANKS:,} devices")
    if hosts is not None:
        if world % hosts or per_node not in (None, world // hosts):
            raise UsageError(f"--hosts {hosts} does not fit {world:,} ranks{_each(per_node)}")
        per_node = world // hosts
    usual = _OTHER_HOSTS.get(device or "", PER_NODE)
    per_node = min(world, per_node or program.per_node or usual)
    if world % per_node:
        raise UsageError(
            f"{world:,} ranks do not fill whole hosts{_each(per_node)}: give another --world, or "
            "the number of devices that a host has (--gpus-per-node)"
        )
    if world % slices:
        raise UsageError(f"--slices {slices} does not divide {world:,} ranks")
    return Cluster(world=world, per_node=per_node, device=device, slices=slices)


def _each(per_node: int | None) -> str:
    return "" if per_node is None else f" of {per_node} each"


def step_choice(text: str | None) -> StepChoice:
    """``--step``: a name or a number; NAME or NAME@FILE:LINE with :NUMBER, :loop or :call after it.

    Raises:
        UsageError: a number below 1.
    """
    if text is None:
        return StepChoice()
    found = _AT.fullmatch(text)
    name, place, number = found.groups() if found else (text, None, None)
    if found is None:
        head, _, tail = text.rpartition(":")
        if (head and tail in (_LOOP, _CALL)) or (tail.isascii() and tail.isdigit()):
            name, number = head, tail
    choice = StepChoice(name=name or None, place=place or "")
    if number == _LOOP:
        return replace(choice, number=1, loop=True)
    if number == _CALL:
        return replace(choice, call=True)
    if number is not None and int(number) < 1:
        raise UsageError(f"--step {text}: steps are counted from 1")
    return choice if number is None else replace(choice, number=int(number))
