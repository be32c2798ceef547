"""In a real program in which one result has another type, the op that no longer fits is named.

Each kind of op of each program is tried where it occurs first.
"""

from pathlib import Path

import pytest

from flint.errors import FlintError
from flint.frontends.saved.parsing import parse
from flint.graph.tensor_types import tensor_type
from flint.stablehlo.verification.verifier import verify

DATA = Path(__file__).parents[2] / "data"
CHEAP = "conditionals.hlo.pb", "moe_einsum_8x8.mlirbc", "tpu_library.hlo.pb.gz"
PROGRAMS = [
    pytest.param(path, marks=[] if path.name in CHEAP else pytest.mark.thorough, id=path.name)
    for folder in ("hlo", "optimized", "stablehlo")
    for path in sorted((DATA / folder).rglob("*"))
    if path.name.endswith((".hlo.pb", ".hlo.pb.gz", ".mlirbc"))
]
#: Nothing but the op itself says what it makes, or a kernel that is not there to be read.
FREE = {
    "async_done", "constant", "custom_call", "fft", "mhlo.topk",
    "mhlo.xla.rng_get_and_update_state", "partition_id", "recv", "replica_id", "rng",
    "rng_bit_generator", "send",
}  # fmt: skip
FREE_SIZES = FREE | {"broadcast_in_dim", "iota"}
FREE_TYPES = FREE | {"bitcast_convert", "convert", "convolution", "dot_general", "iota"}


def firsts(module):
    """The first op of each kind that has one result, a tensor of fixed sizes."""
    found = {}
    for block in module.blocks():
        for op in block.ops:
            if len(op.results) == 1 and not module.type_of(op.results[0]).dynamic:
                found.setdefault(op.name, op)
    return found.values()


def users(module, value):
    """Names of the ops that take a value."""
    return {op.name for block in module.blocks() for op in block.ops if value in op.operands}


def accused(module, value, changed):
    """The op that is refused where a value has another type; None where none is."""
    original = module.value_type[value]
    module.types.append(changed)
    module.value_type[value] = len(module.types) - 1
    try:
        verify(module, lambda op: op.name)
    except FlintError as error:
        assert "\n" not in str(error)
        return str(error).partition(":")[0]
    finally:
        module.value_type[value] = original
    return None


@pytest.mark.parametrize("path", PROGRAMS)
def test_another_type_of_a_result_is_refused(path):
    module = parse(path.read_bytes(), path.name)
    bitcasts = {"reshape"} if module.optimized else set()
    tried = 0
    for op in firsts(module):
        kind = module.type_of(op.results[0])
        if kind.dtype == "token":  # which has no shape
            continue
        larger = tensor_type(
            (*kind.shape[:-1], kind.shape[-1] + 1) if kind.shape else (2,), kind.dtype
        )
        other = tensor_type(kind.shape, "f32" if kind.dtype in ("i1", "i32", "ui32") else "i1")
        for free, changed in ((FREE_SIZES, larger), (FREE_TYPES, other)):
            if op.name not in free | bitcasts:
                named = accused(module, op.results[0], changed)
                # A branch that takes the result from outside, or the call of the function that
                # returns it, may say so first.
                first = users(module, op.results[0]) | {op.name, "call"}
                assert named in first, (op, changed)
                tried += 1
    assert tried
