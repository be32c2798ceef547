"""Which composites are opened, and how many ops a module has with all of them opened.

Compilers see what a model computes.  A framework's optimizers, which update lists of tensors, and
FSDP's copies of shards run outside of that: they stay the kernels that the framework launches.  So
does fused attention, whose kernel PyTorch's compiler calls as it is, and so do kernels of complex
numbers, for which it makes no code.

The idea: calls, loops and branches are walked in place each time, so a module of a hundred ops may
open into more than any machine can hold.  Each block is counted once: its ops, and those that they
open into.

    check_opened(state, module.functions["main"])
"""

from __future__ import annotations

from flint.errors import FlintError
from flint.graph.tensor_types import TensorType
from flint.graph.transfers import is_transfer
from flint.stablehlo.options import FUSE
from flint.stablehlo.read.records import Block, Op
from flint.stablehlo.walk import state as walk_state
from flint.stablehlo.walk.blocks import communicates
from flint.stablehlo.walk.state import WalkState

#: Ops whose regions are walked.
_OPENED = frozenset({
    "async_start", "case", "if", "sdy.manual_computation", "sdy.named_computation", "while",
})  # fmt: skip

#: How names of kernels begin that are launched outside of compiled code.
_OUTSIDE = (
    "aten._foreach_", "aten._fused_adagrad", "aten._fused_adam", "aten._fused_sgd", "fsdp.",
    "aten._scaled_dot_product_flash_attention", "aten._scaled_dot_product_efficient_attention",
    "aten._scaled_dot_product_cudnn_attention", "aten._flash_attention_",
    "aten._efficient_attention_", "aten._cudnn_attention_",
)  # fmt: skip
#: How names of element types begin that a compiler leaves to the framework's kernels.
_COMPLEX = "complex"


def opens(state: WalkState, op: Op) -> bool:
    """Whether a composite is opened for a compiler to fuse."""
    name = str(op.attr("name", ""))
    if not state.options.fuse or is_transfer(name) or name.startswith(_OUTSIDE):
        return False
    types = map(state.module.type_of, (*op.operands, *op.results))
    if any(item.dtype.startswith(_COMPLEX) for item in types if isinstance(item, TensorType)):
        return False
    state.used_options.add(FUSE)
    return True


def check_opened(state: WalkState, entry: Block) -> None:
    """Refuse a module with too many ops for a walk, with calls opened.

    Args:
        state: state of the coming walk.
        entry: where it begins.

    Raises:
        FlintError: more than ``MAX_OPS``.
    """
    known: dict[int, int] = {}

    def ops_of(block: Block) -> int:
        found = known.get(id(block))
        if found is None:
            known[id(block)] = 0  # a function that calls itself is refused by the walk
            inside = [
                ops_of(part)
                for op in block.ops
                if op.regions or op.attrs is not None
                for part in _parts(state, op)
            ]
            found = known[id(block)] = len(block.ops) + sum(inside)
        return found

    if ops_of(entry) > walk_state.MAX_OPS:
        raise FlintError(f"calls and branches open into more than {walk_state.MAX_OPS} ops")


def _parts(state: WalkState, op: Op) -> tuple[Block, ...]:
    """The blocks that are walked in place of an op."""
    if op.name in _OPENED:
        return op.regions
    if op.name == "call":
        return (state.module.functions[op.attr("callee")],)
    if op.name == "composite":
        decomposition = state.module.functions[op.attr("decomposition")]
        if opens(state, op) or communicates(state, decomposition):
            return (decomposition,)
    return ()
