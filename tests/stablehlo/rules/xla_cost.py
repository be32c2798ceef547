"""One-op modules, with the results of XLA's cost analysis and of Flint's rules."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
from jaxlib import _jax

from flint.graph.tensor_types import TensorType
from flint.graph.work import Work
from flint.stablehlo.read.reader import read_mlir
from flint.stablehlo.read.records import Module, Op
from flint.stablehlo.rules import work_of


class Cost(NamedTuple):
    """The three numbers that are compared."""

    flops: int
    transcendentals: int
    bytes: int


class OneOp(NamedTuple):
    """A module of one op: operand types, result types, and the op as text on ``%0``, ``%1`` ..."""

    operands: tuple[str, ...]
    results: tuple[str, ...]
    body: str

    @property
    def text(self) -> str:
        arguments = ", ".join(f"%{i}: tensor<{t}>" for i, t in enumerate(self.operands))
        results = ", ".join(f"tensor<{t}>" for t in self.results)
        many = len(self.results) > 1
        names = ", ".join(f"%r#{i}" for i in range(len(self.results))) if many else "%r"
        left = f"%r:{len(self.results)}" if many else "%r"
        return (
            f"module {{ func.func @main({arguments}) -> ({results}) {{\n"
            f"  {left} = {self.body}\n  return {names} : {results}\n}} }}"
        )


def one_op(operands: str, results: str, body: str) -> OneOp:
    """``one_op("f32 4xf32", "4xf32", ...)``; ``{types}`` in the body is its function type and
    ``{args}`` its operands."""
    ins, outs = tuple(operands.split()), tuple(results.split())
    left = ", ".join(f"tensor<{t}>" for t in ins)
    right = ", ".join(f"tensor<{t}>" for t in outs)
    args = ", ".join(f"%{i}" for i in range(len(ins)))
    body = body.replace("{types}", f"({left}) -> ({right})").replace("{args}", args)
    return OneOp(ins, outs, body)


def simple(name: str, operands: str, results: str, attributes: str = "") -> OneOp:
    """An op in generic form without regions."""
    inside = f" {{{attributes}}}" if attributes else ""
    return one_op(operands, results, f'"{name}"({{args}}){inside} : {{types}}')


def xla_computation(text: str) -> Any:
    """A StableHLO module as XLA's computation."""
    return _jax.mlir.mlir_module_to_xla_computation(text.encode())


def analysis_of(computation: Any) -> dict[str, float]:
    """All keys of XLA's cost analysis."""
    client, module = jax.devices()[0].client, computation.get_hlo_module()
    analysis: dict[str, float] = _jax.hlo_module_cost_analysis(client, module)
    return analysis


def cost_of(computation: Any) -> Cost:
    """XLA's three numbers."""
    analysis = analysis_of(computation)
    keys = ("flops", "transcendentals", "bytes accessed")
    return Cost(*(int(analysis.get(key, 0)) for key in keys))


def xla_cost(text: str) -> Cost:
    """XLA's three numbers for a module."""
    return cost_of(xla_computation(text))


def read_one(case: OneOp) -> tuple[Op, list[TensorType], list[TensorType]]:
    """The op of a one-op module with its operand and result types."""
    module = read_mlir(case.text.encode())
    op = module.functions["main"].ops[-1]
    return op, types(module, op.operands), types(module, op.results)


def types(module: Module, values: tuple[int, ...]) -> list[TensorType]:
    return [module.type_of(value) for value in values]


def our_work(case: OneOp) -> Work:
    """Flint's work for a one-op module."""
    return work_of(*read_one(case))


def our_cost(case: OneOp) -> Cost:
    """Flint's three numbers for a one-op module."""
    work = our_work(case)
    return Cost(work.flops, work.transcendentals, work.read + work.written)
