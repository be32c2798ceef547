"""Inputs and outputs of a lowered module: names, roles, shardings, and which buffers XLA reuses.

The idea: JAX writes names, shardings and donation on the entry function.  A donated buffer that
JAX has not paired with an output is paired by XLA: largest first, with an output of the same size.
The partitioned module is too early for that, so the same is done here, on per-device types.

    interface = interface_of(lowered.compiler_ir("stablehlo"))
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from flint.capturing.converting import program_inputs
from flint.stablehlo.read.bindings import ir
from flint.stablehlo.read.locations import source_info
from flint.stablehlo.read.reader import is_sharded
from flint.stablehlo.read.records import Module
from flint.workload.programs import ProgramInput

_SHARDINGS = ("sdy.sharding", "mhlo.sharding")

#: Words in an argument's path -> its role; the first word that is one of them decides.
_ROLES: dict[str, str] = {
    **dict.fromkeys(("params", "parameters", "param", "weights", "model"), "parameter"),
    **dict.fromkeys(
        (
            "opt_state", "opt", "optimizer", "optimizer_state", "optim", "mu", "nu", "momentum",
            "adam", "m", "v", "count", "step", "global_step",
        ),
        "optimizer state",
    ),
    **dict.fromkeys(
        (
            "batch", "tokens", "inputs", "targets", "labels", "images", "input_ids", "mask", "data",
            "x", "y",
        ),
        "batch",
    ),
    **dict.fromkeys(("cache", "kv_cache", "kv", "caches"), "cache"),
}  # fmt: skip
_WORD = re.compile(r"[A-Za-z_]\w*")


@dataclass(frozen=True, slots=True)
class Interface:
    """Inputs and outputs of an entry function.

    Attributes:
        names: the path of each input in the step's arguments.
        donated: inputs whose buffer may be reused.
        inputs_free, outputs_free: inputs and outputs whose sharding XLA may choose.
        sharded: whether anything is annotated with a sharding over devices.
    """

    names: tuple[str, ...]
    donated: frozenset[int]
    inputs_free: tuple[bool, ...]
    outputs_free: tuple[bool, ...]
    sharded: bool


def interface_of(module: Any) -> Interface:
    """The interface of a lowered ``ir.Module``."""
    main: Any = ir.SymbolTable(module.operation)["main"]
    arguments = list(main.regions[0].blocks[0].arguments)
    inputs = _attributes(main, "arg_attrs", len(arguments))
    outputs = _attributes(main, "res_attrs", len(ir.FunctionType(main.type).results))
    texts = [str(item[key]) for item in (*inputs, *outputs) for key in _SHARDINGS if key in item]
    return Interface(
        names=tuple(source_info(argument.location).name for argument in arguments),
        donated=frozenset(n for n, item in enumerate(inputs) if "jax.buffer_donor" in item),
        inputs_free=tuple(not _stated(item) for item in inputs),
        outputs_free=tuple(not _stated(item) for item in outputs),
        sharded=any(map(is_sharded, texts)) or "sdy.mesh" in _top_level(module),
    )


def inputs_of(module: Module, interface: Interface) -> tuple[ProgramInput, ...]:
    """Type, name, role and donation of the inputs of a (partitioned) module.

    Args:
        module: records of the module.
        interface: of the lowered module that it comes from, with the same inputs.
    """
    stated = program_inputs(module)
    names = interface.names if len(interface.names) == len(stated) else ()
    paired = donations(module, interface.donated)
    return tuple(
        ProgramInput(
            type=item.type,
            role=role_of(names[number] if names else item.name),
            name=names[number] if names else item.name,
            donated=paired.get(number, -1),
            sharding=item.sharding,
        )
        for number, item in enumerate(stated)
    )


def role_of(path: str) -> str:
    """The role of an argument by the words of its path, "unknown" where no word is known.

    >>> role_of("state.opt_state[0].mu['layers']['wq']")
    'optimizer state'
    """
    for word in _WORD.findall(path):
        if word in _ROLES:
            return _ROLES[word]
    return "unknown"


def donations(module: Module, donors: frozenset[int]) -> dict[int, int]:
    """Entry parameter -> entry output that takes its buffer.

    Those that the module states, and the donors paired as XLA's
    ``OptimizeInputOutputBufferAlias`` does: both sides by size, largest first, order kept among
    equals; a pair has one size.
    """
    main = module.functions["main"]
    paired = dict(module.donated)
    sources = [n for n in sorted(donors) if n not in paired and n < len(main.args)]
    taken = set(paired.values())
    targets = [n for n in range(len(main.yields)) if n not in taken]

    def size_in(number: int) -> int:
        return module.type_of(main.args[number]).bytes

    def size_out(number: int) -> int:
        return module.type_of(main.yields[number]).bytes

    sources.sort(key=size_in, reverse=True)
    targets.sort(key=size_out, reverse=True)
    source = target = 0
    while source < len(sources) and target < len(targets):
        larger = size_in(sources[source]) - size_out(targets[target])
        if larger == 0:
            paired[sources[source]] = targets[target]
        source += larger >= 0
        target += larger <= 0
    return paired


def _attributes(main: Any, key: str, count: int) -> list[Any]:
    if key not in main.attributes:
        return [{}] * count
    return [ir.DictAttr(item) for item in ir.ArrayAttr(main.attributes[key])]


def _stated(item: Any) -> bool:
    return any(key in item and "?" not in str(item[key]) for key in _SHARDINGS)


def _top_level(module: Any) -> set[str]:
    return {op.operation.name for op in module.body.operations}
