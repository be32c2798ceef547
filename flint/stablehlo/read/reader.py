"""MLIR modules -> op records.

The idea: one walk over the module, types cached by the binding's type object and attributes decoded
only for the ops whose rules need them (``attributes.py``), because each call through the bindings
costs a microsecond and a module may hold a hundred thousand ops.  Locations stay opaque objects
until they are needed.  Only functions that are reachable from ``@main`` are read.

    module = read_mlir(open("model.mlirbc", "rb").read(), "model.mlirbc")
    [op.name for op in module.functions["main"].ops]
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flint.errors import FlintError
from flint.host.collection import uncollected
from flint.stablehlo.read.annotations import MANUAL, devices_annotated, devices_stated
from flint.stablehlo.read.attributes import DECODERS, entries
from flint.stablehlo.read.bindings import BYTECODE_MAGIC, attribute_text, ir, parse, sdy
from flint.stablehlo.read.entries import entry_of, functions_of
from flint.stablehlo.read.issue_attributes import (
    NAME,
    RECORDED,
    ROLE,
    allocations_of,
    issue_of,
    location_of,
    recorded_source,
    text,
)
from flint.stablehlo.read.locations import source_info, source_of_attribute
from flint.stablehlo.read.mlir_types import TypeTable
from flint.stablehlo.read.module_attributes import aliases_of, integer_of
from flint.stablehlo.read.records import (
    Block,
    Issue,
    Module,
    Op,
    ReplicaGroups,
    SourceInfo,
    is_sharded,
)
from flint.stablehlo.read.region_calls import inline_calls

#: Ops that declare something and compute nothing.
_DECLARATIONS = frozenset({"sdy.mesh", "mhlo.mesh", "stablehlo.mesh"})
#: Ops of other dialects that frontends leave among StableHLO's (torch-mlir its constants).
_RENAMED = {"func.call": "call", "arith.constant": "constant"}


@uncollected
def read_mlir(data: bytes, name: str = "<module>", entry: str | None = None) -> Module:
    """Read a StableHLO module (text, bytecode or VHLO) into records.

    Args:
        data: the module's bytes.
        name: file name for errors.
        entry: the function to start from; default ``main``, else the only public one.

    Raises:
        FlintError: not a module, no entry function, a missing callee, or an unknown type.
    """
    # The parser calls its text "-".
    lines_of = "-" if data.startswith(BYTECODE_MAGIC) else name
    return _Reader(parse(data, name), name, lines_of).read(entry)


def _source(lines_of: str, of: Callable[[Any], SourceInfo], location: Any) -> SourceInfo:
    """Where an op comes from: by its location, or its own line in a text without locations."""
    found = of(location)
    return replace(found, file=lines_of) if found.file == "-" else found


class _Reader:
    def __init__(self, module: Any, name: str, lines_of: str) -> None:
        self.module = module
        self.name = name
        self.lines_of = lines_of
        self.types = TypeTable(name)
        self.ids: dict[Any, int] = {}
        self.value_type: list[int] = []
        self.pending: list[str] = []
        #: Decoded values of attributes that many ops share.
        self.groups: dict[Any, ReplicaGroups] = {}
        self.pairs: dict[Any, NDArray[np.int64]] = {}
        self.short_names: dict[str, str] = {}
        self.meshes: dict[str, tuple[tuple[str, int], ...]] = {}
        self.device_orders: dict[str, tuple[int, ...]] = {}
        self.recorded = RECORDED in module.operation.attributes
        self.issues: dict[int, Issue] = {}

    def read(self, wanted: str | None) -> Module:
        functions = functions_of(self.module, self.name)
        for view in self.module.body.operations:
            op = view.operation
            if op.name in _DECLARATIONS:
                mesh = sdy.MeshAttr(op.attributes["mesh"])
                symbol = ir.StringAttr(op.attributes["sym_name"]).value
                axes = map(sdy.MeshAxisAttr, mesh.axes)
                self.meshes[symbol] = tuple((axis.name, axis.size) for axis in axes)
                self.device_orders[symbol] = tuple(mesh.device_ids or ())
        entry = entry_of(functions, wanted, self.name)
        read: dict[str, Block] = {}
        self.pending.append(entry)
        while self.pending:
            callee = self.pending.pop()
            if callee in read:
                continue
            if callee not in functions:
                raise FlintError(f"{self.name}: @{callee} is called but not defined")
            blocks = list(functions[callee].regions[0].blocks)
            if len(blocks) != 1:
                raise FlintError(
                    f"{self.name}: function @{callee} has {len(blocks)} blocks; structured "
                    "StableHLO has one (unlike a declaration or a control-flow graph)"
                )
            read[callee] = self._block(blocks[0])
        if "call" in self.short_names.values():
            inline_calls(read, self.value_type)
        if entry != "main":
            read["main"] = read.pop(entry)
        return self._describe(functions[entry], read)

    def _describe(self, main: Any, functions: dict[str, Block]) -> Module:
        attributes = self.module.operation.attributes
        arguments = len(functions["main"].args)
        donated = aliases_of(attributes)
        donors: set[int] = set()
        shardings = [""] * arguments
        names = [""] * arguments
        roles = [""] * arguments
        if "arg_attrs" in main.attributes:
            for number, attribute in enumerate(ir.ArrayAttr(main.attributes["arg_attrs"])):
                named = {item.name: item.attr for item in entries(attribute)}
                for key in ("mhlo.sharding", "sdy.sharding"):
                    if key in named:
                        shardings[number] = attribute_text(named[key])
                if "jax.buffer_donor" in named:
                    donors.add(number)
                if "tf.aliasing_output" in named:
                    donated[number] = ir.IntegerAttr(named["tf.aliasing_output"]).value
                roles[number], names[number] = text(named, ROLE), text(named, NAME)
        for number, argument in enumerate(main.regions[0].blocks[0].arguments):
            names[number] = names[number] or source_info(argument.location).name
        outputs: list[str] = []
        if "res_attrs" in main.attributes:
            for attribute in ir.ArrayAttr(main.attributes["res_attrs"]):
                named = {item.name: item.attr for item in entries(attribute)}
                keys = [key for key in ("mhlo.sharding", "sdy.sharding") if key in named]
                outputs.append(attribute_text(named[keys[0]]) if keys else "")
        if "mhlo.spmd_output_sharding" in attributes:
            outputs.append(attribute_text(attributes["mhlo.spmd_output_sharding"]))
        partitions = integer_of(attributes, "mhlo.num_partitions")
        stated = devices_stated(partitions, self.meshes)
        spread = devices_annotated(self.short_names, functions, stated)
        whole = spread > 1 or (stated > 1 and MANUAL in self.short_names)
        return Module(
            name=attribute_text(attributes["sym_name"]) if "sym_name" in attributes else "",
            functions=functions,
            value_type=self.value_type,
            types=self.types.types,
            num_partitions=max(partitions, spread),
            num_replicas=integer_of(attributes, "mhlo.num_replicas"),
            meshes=self.meshes,
            donated=donated,
            donors=frozenset(donors),
            input_shardings=tuple(shardings),
            output_shardings=tuple(outputs),
            partitioned=not (whole or any(map(is_sharded, (*shardings, *outputs))))
            or "mhlo.spmd_parameters_shardings" in attributes,
            annotated=spread > 1,
            input_names=tuple(names),
            input_roles=tuple(roles),
            issues=self.issues,
            allocations=allocations_of(attributes) if self.recorded else None,
            location=partial(
                _source, self.lines_of, recorded_source if self.recorded else source_of_attribute
            ),
            warnings=dict(self.types.warnings),
        )

    def _block(self, block: Any) -> Block:
        ids, value_type, type_of = self.ids, self.value_type, self.types.index
        arguments = []
        for argument in block.arguments:
            ids[argument] = number = len(value_type)
            arguments.append(number)
            value_type.append(type_of(argument.type))
        ops: list[Op] = []
        append, short_names, decoders = ops.append, self.short_names, DECODERS
        yields: tuple[int, ...] = ()
        try:
            for view in block.operations:
                op = view.operation
                full_name = op.name
                name = short_names.get(full_name)
                if name is None:
                    name = self._short_name(full_name)
                operands = tuple([ids[value] for value in op.operands])
                if name == "return":
                    yields = operands
                    continue
                results = []
                for result in op.results:
                    ids[result] = number = len(value_type)
                    results.append(number)
                    value_type.append(type_of(result.type))
                decoder = decoders.get(name)
                try:
                    attrs = decoder(op, self) if decoder is not None else None
                except (ValueError, LookupError) as error:
                    raise FlintError(
                        f"{self.name}: {name} has an attribute that is not valid for it ({error})"
                    ) from error
                regions: tuple[Block, ...] = ()
                if len(op.regions):
                    regions = tuple(
                        [self._block(region.blocks[0]) for region in op.regions if region.blocks]
                    )
                # Equal locations have equal attributes, but are distinct objects.
                location = op.location.attr
                if self.recorded:
                    location = self._issue(op, results)
                append(Op(name, operands, tuple(results), attrs, regions, location))
        except RecursionError:
            raise FlintError(f"{self.name}: regions are nested too deeply") from None
        return Block(tuple(arguments), ops, yields)

    def _issue(self, op: Any, results: list[int]) -> Hashable:
        """Keep how an op was issued; returns where it comes from."""
        issue = issue_of(op)
        if issue is not None and results:
            self.issues[results[0]] = issue
        return location_of(op)

    def _short_name(self, full_name: str) -> str:
        name = _RENAMED.get(full_name)
        if name is None:
            dialect, _, rest = full_name.partition(".")
            name = rest if dialect == "stablehlo" else full_name
            if rest == "return":
                name = "return"
        self.short_names[full_name] = name
        return name
