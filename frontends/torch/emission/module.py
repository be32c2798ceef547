"""Recording -> StableHLO module.

The idea: ops are emitted in issue order onto one SSA value per storage.  The operands of an op are
read out of the storages, its composite computes, and its results are written back.  Everything in
``@main`` besides composites and collectives is plumbing and marked ``flint.view``.

    data, warnings = emitted(recording)
"""

from __future__ import annotations

import io
from collections import Counter
from dataclasses import astuple, dataclass
from typing import Any

import numpy as np
from jaxlib.mlir.dialects import func

from flint.errors import FlintError
from flint.frontends.torch.emission.collectives import Collectives
from flint.frontends.torch.emission.decompositions import Decompositions, parameter
from flint.frontends.torch.emission.issue import IssueAttributes
from flint.frontends.torch.emission.library_kernels import does
from flint.frontends.torch.emission.storages import Storages
from flint.frontends.torch.lowerings import operations as build
from flint.frontends.torch.recording import effects
from flint.frontends.torch.recording.collectives import is_communication
from flint.frontends.torch.recording.recording import Op, Recording, View, reads, views_in
from flint.graph.transfers import COPIES, DEVICE_WAY, HOST_WAY
from flint.stablehlo.read.bindings import ir, make_context
from flint.stablehlo.read.issue_attributes import (
    ALLOCATIONS,
    DOES,
    EXPANDABLE,
    ID,
    NAME,
    RECORDED,
    ROLE,
    VIEW,
)

_ALIASING = "tf.aliasing_output"


@dataclass(frozen=True, slots=True)
class Emitted:
    """A module and the assumptions made in writing it.

    Attributes:
        data: MLIR bytecode.
        warnings: text -> how many ops.
    """

    data: bytes
    warnings: dict[str, int]


def emitted(recording: Recording, strict: bool = False) -> Emitted:
    """A recording as StableHLO.

    Args:
        recording: one rank's step.
        strict: refuse ops without a lowering instead of estimating their FLOPs.

    Raises:
        FlintError: an op cannot be written correctly; the text names it and its line.
    """
    with make_context(), ir.Location.unknown():
        emission = _Emission(recording, strict)
        module = emission.module()
        buffer = io.BytesIO()
        module.operation.write_bytecode(buffer)
    return Emitted(buffer.getvalue(), dict(emission.warnings))


class _Emission:
    def __init__(self, recording: Recording, strict: bool) -> None:
        self.recording = recording
        # A known constant is written as a constant and is not a parameter.
        known = {item.view.storage: item for item in reversed(recording.inputs)}
        self.inputs = [
            item
            for item in recording.inputs
            if known[item.view.storage] is item and item.view.storage not in recording.constants
        ]
        self.made = ir.Module.create()
        self.storages = Storages(recording.storage_bytes)
        self.on_host = frozenset(recording.host)
        self.issue = IssueAttributes()
        self.decompositions = Decompositions(self.made, strict)
        self.collectives = Collectives(recording, self.storages)
        self.warnings: Counter[str] = Counter()

    def module(self) -> Any:
        attributes = self.made.operation.attributes
        attributes["sym_name"] = ir.StringAttr.get("step")
        attributes[RECORDED] = ir.UnitAttr.get()
        rows: Any = np.array([astuple(life) for life in self.recording.lives], np.int64)
        if len(rows):
            attributes[ALLOCATIONS] = ir.DenseElementsAttr.get(rows)
            attributes[EXPANDABLE] = ir.BoolAttr.get(self.recording.expandable)
        world = ir.IntegerAttr.get(ir.IntegerType.get_signless(32), self.recording.world_size)
        attributes["mhlo.num_partitions"] = world
        attributes["mhlo.num_replicas"] = ir.IntegerAttr.get(world.type, 1)
        inputs = self._inputs()
        types = [build.tensor(view.shape, view.dtype) for view in inputs]
        with ir.InsertionPoint(self.made.body):
            main: Any = func.FuncOp("main", ir.FunctionType.get(types, []))
        block = main.add_entry_block()
        for view, argument in zip(inputs, block.arguments, strict=True):
            self.storages.write(view, argument)
        with ir.InsertionPoint(block):
            self._constants()
            for number, op in enumerate(self.recording.ops):
                try:
                    self._emit(number, op)
                except FlintError as error:
                    where = f" at {op.file}:{op.line}" if op.file else ""
                    raise FlintError(f"op {number} ({op.name}){where}: {error}") from error
            mutated = [at for at, view in enumerate(inputs) if self._is_mutated(view)]
            returned = [self.storages.read(inputs[at]) for at in mutated]
            returned += [self.storages.read(view) for view in self.recording.results]
            func.ReturnOp(returned)
        kind = ir.FunctionType.get(types, [value.type for value in returned])
        main.attributes["function_type"] = ir.TypeAttr.get(kind)
        main.attributes["arg_attrs"] = self._argument_attributes(mutated)
        self._mark_plumbing(block)
        self._sum_up()
        return self.made

    def _inputs(self) -> list[View]:
        return [self.storages.whole(item.view) for item in self.inputs]

    def _is_mutated(self, view: View) -> bool:
        return self.storages.version(view.storage) > 1

    def _constants(self) -> None:
        """Small tensors whose values the recording knows."""
        firsts = {
            view.storage: view
            for op in reversed(self.recording.ops)
            for view in reversed(list(reads(op)))
            if view.storage in self.recording.constants
        }
        for storage, view in firsts.items():
            data = np.frombuffer(self.recording.constants[storage], np.uint8)
            vector = build.bitcast(build.literal(data, "uint8"), view.dtype)
            flat = View(storage, 0, build.shape_of(vector), (1,), view.dtype)
            self.storages.write(flat, vector)

    def _emit(self, number: int, op: Op) -> None:
        if is_communication(op.name):
            location = self.issue.location(op)
            self.collectives.emit(op, self.issue.attributes(number, op), location)
        elif effects.is_allocation(op):
            for view in views_in(op.results):
                self.storages.allocate(view.storage)
            self.issue.skip(number, op)
        elif effects.is_forwarding(op):
            self._forward(op)
            self.issue.skip(number, op)
        elif effects.is_view(op):
            self.issue.skip(number, op)
        else:
            targets = effects.targets(op)
            if targets:
                self._kernel(number, op, targets)
            else:
                if not effects.is_question(op):
                    self.warnings[f"{op.name} returns and writes no tensor: left out"] += 1
                self.issue.skip(number, op)

    def _forward(self, op: Op) -> None:
        source = next(views_in(op.args), None)
        for view in views_in(op.results):
            if source is not None and view.storage != source.storage:
                self.storages.write(view, self.storages.read(source))

    def _kernel(self, number: int, op: Op, targets: tuple[View, ...]) -> None:
        found = self.decompositions.of(op, targets)
        views = list(reads(op))
        operands = [self.storages.read(parameter(views[at])) for at in found.operands]
        if not found.targets:
            self.issue.skip(number, op)
            return
        attributes = self.issue.attributes(number, op)
        way = self._way(op, targets[0])
        attributes["name"] = (
            self.issue.text(f"{effects.plain_name(op)}.{way}") if way else found.name
        )
        attributes["decomposition"] = found.function
        kind = does(op)
        if kind:
            attributes[DOES] = self.issue.text(kind)
        made = ir.Operation.create(
            "stablehlo.composite",
            results=list(found.results),
            operands=operands,
            attributes=attributes,
            loc=self.issue.location(op),
        )
        # Everything is read by now: ops over lists read all operands before they write any result.
        for at, value in zip(found.targets, made.results, strict=True):
            self.storages.write(targets[at], value)

    def _way(self, op: Op, target: View) -> str:
        """The target memory of a copy between device and host; "" for any other op."""
        if effects.plain_name(op) not in COPIES:
            return ""
        *_, source = views_in(op.args)
        there = source.storage in self.on_host, target.storage in self.on_host
        return {(False, True): HOST_WAY, (True, False): DEVICE_WAY}.get(there, "")

    def _argument_attributes(self, mutated: list[int]) -> Any:
        output = {at: number for number, at in enumerate(mutated)}
        made = []
        for at, item in enumerate(self.inputs):
            entry: dict[str, Any] = {
                ROLE: self.issue.text(item.role),
                NAME: self.issue.text(item.name),
            }
            if at in output:
                kind = ir.IntegerType.get_signless(32)
                entry[_ALIASING] = ir.IntegerAttr.get(kind, output[at])
            made.append(ir.DictAttr.get(entry))
        return ir.ArrayAttr.get(made)

    def _mark_plumbing(self, block: Any) -> None:
        unit = ir.UnitAttr.get()
        for item in block.operations:
            attributes = item.operation.attributes
            if ID not in attributes and item.operation.name != "func.return":
                attributes[VIEW] = unit

    def _sum_up(self) -> None:
        self.warnings.update(self.decompositions.warnings)
        self.warnings.update(self.collectives.warnings)
        unwritten = sum(self.storages.unwritten.values())
        if unwritten:
            self.warnings["storages read before anything in the step wrote them"] += unwritten
