"""Inputs and outputs of a lowered module: names, roles, shardings, and which buffers XLA reuses.

The idea: JAX writes names, shardings and donation on the entry function.  The partitioned module
has lost some of it, so it is read earlier.

    interface = interface_of(lowered.compiler_ir("stablehlo"))
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

from flint.stablehlo.read.bindings import ir
from flint.stablehlo.read.locations import source_info
from flint.stablehlo.read.records import is_sharded
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


def named_inputs(
    stated: tuple[ProgramInput, ...], interface: Interface
) -> tuple[ProgramInput, ...]:
    """The inputs of a (partitioned) module with the names and roles of their arguments.

    Args:
        stated: the inputs as the module states them.
        interface: of the lowered module that it comes from, with the same inputs.
    """
    names = interface.names
    if len(names) != len(stated):
        names = tuple(item.name for item in stated)
    return tuple(
        replace(item, name=name, role=role_of(name))
        for item, name in zip(stated, names, strict=True)
    )


def role_of(path: str) -> str:
    """The role of an argument by the words of its path, "unknown" if no word is known.

    >>> role_of("state.opt_state[0].mu['layers']['wq']")
    'optimizer state'
    """
    for word in _WORD.findall(path):
        if word in _ROLES:
            return _ROLES[word]
    return "unknown"


def _attributes(main: Any, key: str, count: int) -> list[Any]:
    if key not in main.attributes:
        return [{}] * count
    return [ir.DictAttr(item) for item in ir.ArrayAttr(main.attributes[key])]


def _stated(item: Any) -> bool:
    return any(key in item and "?" not in str(item[key]) for key in _SHARDINGS)


def _top_level(module: Any) -> set[str]:
    return {op.operation.name for op in module.body.operations}
