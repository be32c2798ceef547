"""Kernels made of several ops: a backend's fusions, a framework's composites.

The idea: such an op is one node.  Its FLOPs are those of the ops inside, its bytes are what it
accesses of its operands and results (``rules/accessed_bytes.py``).  One that communicates is
opened, so that no communication is hidden; ``--fuse`` opens every composite.
"""

from __future__ import annotations

from collections.abc import Mapping

from flint.cost.op_work import block_scaled
from flint.errors import FlintError
from flint.graph.graph import NodeKind
from flint.graph.work import Role, Unit, Work, WorkItem
from flint.stablehlo.handlers.simple import check_size, measure, simple
from flint.stablehlo.read.records import Block, Op
from flint.stablehlo.rules.accessed_bytes import accessed_bytes, constant_bytes, copied_bytes
from flint.stablehlo.rules.bytes import total_bytes
from flint.stablehlo.rules.causal_masks import Share
from flint.stablehlo.rules.control import writes_in_place
from flint.stablehlo.rules.heroes import hero_of
from flint.stablehlo.rules.hidden_scores import visible_shares
from flint.stablehlo.rules.names import names
from flint.stablehlo.values.arrays import Array
from flint.stablehlo.values.elementwise import is_scalar_integer
from flint.stablehlo.values.scalars import block_scalars
from flint.stablehlo.walk.blocks import communicates, open_instead
from flint.stablehlo.walk.known import Known
from flint.stablehlo.walk.opened import opens
from flint.stablehlo.walk.scope import Scope
from flint.stablehlo.walk.state import Handler, WalkState

#: Ops whose work is that of their regions.
_REGIONS_RUN = frozenset(
    names("async_start case fusion if sdy.manual_computation sdy.named_computation while")
)


#: JAX's product with a scale per block, whose decomposition multiplies the scales in.
_SCALED_DOT = "xla.scaled_dot"


def _fusion(state: WalkState, scope: Scope, op: Op) -> None:
    """A kernel that a backend has fused; opened when it communicates."""
    if not op.regions:
        simple(state, scope, op)
        return
    body = op.regions[0]
    if communicates(state, body):
        state.warnings["a fusion with a communication inside: opened into its ops"] += 1
        open_instead(state, scope, op, body, op.operands)
        return
    read, written, aliased = accessed_bytes(state.module, body)
    read += constant_bytes(state.module, body)
    work = Work(_region_work(state, body, 0), read, written, aliased)
    _kernel(state, scope, op, str(op.attr("name", "fusion")), work, hero_of(state.module, body))
    _keep_scalars(state, op, body)


def _keep_scalars(state: WalkState, op: Op, body: Block) -> None:
    """Keep the expressions of integers that a kernel computes, such as a rank's branch."""
    made = [
        (result, value)
        for result, value in zip(op.results, body.yields, strict=False)
        if is_scalar_integer(state.module.type_of(result))
    ]
    if not made:
        return
    passed = dict(zip(body.args, op.operands, strict=False))
    known = {a: found for a, v in passed.items() if (found := state.scalar(v)) is not None}

    def array(value: int) -> Array | None:
        return state.array(passed.get(value, value))

    inside = block_scalars(body, state.module, known, state.scalar, array)
    for result, value in made:
        if value in inside:
            state.know(result, Known(inside[value]))


def _composite(state: WalkState, scope: Scope, op: Op) -> None:
    """One kernel with its decomposition's FLOPs; opened when it communicates, or on demand."""
    decomposition = state.module.functions[op.attr("decomposition")]
    name = str(op.attr("name", "composite"))
    if opens(state, op) or communicates(state, decomposition):
        first = len(scope.builder)
        open_instead(state, scope, op, decomposition, op.operands)
        if op.results and op.results[0] in state.module.issues:
            nodes = range(first, len(scope.builder))
            state.opened[op.results[0]] = nodes, state.source(op.loc)
        return
    key = id(decomposition), writes_in_place(name)
    work = state.composite_work.get(key)
    if work is None and name == _SCALED_DOT:
        work = state.composite_work[key] = _scaled_dot(state, op, decomposition)
    if work is None:
        moved_bytes = accessed_bytes if key[1] else copied_bytes
        moved = moved_bytes(state.module, decomposition)
        work = Work(_function_work(state, decomposition, 0), *moved)
        state.composite_work[key] = work
    _kernel(state, scope, op, name, work, str(op.attr("does", "")))


def _scaled_dot(state: WalkState, op: Op, decomposition: Block) -> Work:
    """Its products, as products of narrow floats with a scale per block, for which there are
    units.
    """
    operands, results = (
        [state.module.type_of(value) for value in values] for values in (op.operands, op.results)
    )
    dtype = block_scaled(operands[0].dtype)
    items = _function_work(state, decomposition, 0)
    products = tuple(item._replace(dtype=dtype) for item in items if item.unit == Unit.MATMUL)
    return Work(products, total_bytes(operands), total_bytes(results))


def _kernel(state: WalkState, scope: Scope, op: Op, name: str, work: Work, hero: str = "") -> None:
    """Add a kernel of known work that represents ``op``."""
    check_size(state, op, name, work)
    operands = [scope.use(value) for value in op.operands]
    results = scope.builder.node(
        NodeKind.COMPUTE,
        state.tables.op(name, hero),
        operands,
        state.types(op.results),
        role=Role.OPAQUE,
        work=work,
        source=state.source(op.loc),
        order=scope.order(operands),
    )
    scope.values.update(zip(op.results, results, strict=True))


def _function_work(state: WalkState, block: Block, depth: int) -> tuple[WorkItem, ...]:
    """Work of a function, computed once, without scores that a mask hides.

    A decomposition defines only the result, and the kernel may skip work; a backend's fusion runs
    as written.
    """
    key = id(block), True
    items = state.kernel_work.get(key)
    if items is None:
        items = _work_inside(state, block, depth, visible_shares(state.module, block))
        state.kernel_work[key] = items
    return items


def _region_work(state: WalkState, block: Block, depth: int) -> tuple[WorkItem, ...]:
    """Work of a region, which several ops may share, computed once."""
    key = id(block), False
    items = state.kernel_work.get(key)
    if items is None:
        items = state.kernel_work[key] = _work_inside(state, block, depth, {})
    return items


def _work_inside(
    state: WalkState, block: Block, depth: int, shares: Mapping[int, Share]
) -> tuple[WorkItem, ...]:
    """Work items of everything a kernel's block does, by unit, type and GEMM size.

    Loops are not counted.

    Args:
        state: of the walk.
        block: of the kernel.
        depth: calls around it.
        shares: first result of an op -> how much of it is computed, if not all.
    """
    if depth > 100:
        raise FlintError("composites or calls nest too deeply")
    total: dict[tuple[object, ...], WorkItem] = {}

    def add(items: tuple[WorkItem, ...]) -> None:
        for item in items:
            key = (item.unit, item.dtype, item.dims)
            known = total.get(key)
            total[key] = item if known is None else item._replace(flops=known.flops + item.flops)

    for op in block.ops:
        function = op.attr("callee") or op.attr("decomposition")
        if function is not None:
            add(_function_work(state, state.module.functions[function], depth + 1))
        elif op.name in _REGIONS_RUN and op.regions:
            for body in op.regions:
                add(_region_work(state, body, depth + 1))
            if op.name == "while":
                state.warnings["a loop inside a kernel: its FLOPs are counted once"] += 1
            elif op.name in ("case", "if"):
                state.warnings["a conditional inside a kernel: all its branches count"] += 1
        else:
            items = measure(state, op)[2].items
            share = shares.get(op.results[0]) if op.results else None
            add(items if share is None else share.of(items))
    return tuple(total.values())


HANDLERS: dict[str, Handler] = {"composite": _composite, "fusion": _fusion}
