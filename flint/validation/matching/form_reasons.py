"""The named reasons why two ops with the same key do not look the same.

form_reasons(rules, captured, executed)        # (SWAPPED,)
"""

from __future__ import annotations

from flint.observed.classes import OpClass, aten_class
from flint.observed.columns import OpFacts
from flint.observed.selection import LIBRARY_NAMES, plain_name
from flint.validation.matching.equivalence import TO_ROOT, WIDER, Rules, distinct_tensors, last_name

PROMOTED = "bfloat16 is computed and sent as float32 on the CPU"
PROMOTED_8_BITS = "8-bit floats are computed and sent as float16 on the CPU"
PROMOTED_4_BITS = "4-bit integers are computed and sent as 8 bits on the CPU"
_PROMOTED = {"f32": PROMOTED, "f16": PROMOTED_8_BITS, "i8": PROMOTED_4_BITS, "ui8": PROMOTED_4_BITS}
WIDENED = "a matrix product of narrower floats, which the CPU converts to float32 first"
WIDENED_INTEGERS = "a matrix product of narrower integers, which the CPU converts to int32 first"
SCATTERED = "a reduce-scatter that runs as the all-reduce and slice of the program"
SWAPPED = "a matrix product with its operands swapped: the transpose of the result"
LAYOUT = "a convolution with its dims in another order"
BUFFERS = "an all-to-all with one buffer per member, of the same bytes in all"
LIBRARY = "the profiler records the library's name of the op"
ANOTHER_OP = "another op that computes the same matrix product"
IN_PLACE = "in place or into a new tensor: autograd decides by what else uses the tensor"
ATTENTION = "another library's attention kernel than the one captured"
ROOTED = (
    "a reduce to one rank, captured as an all-reduce, because StableHLO has no reduce to one rank"
)
BARRIER = "a barrier, captured as the all-reduce of one number that NCCL runs for it"


def form_reasons(rules: Rules, captured: OpFacts, executed: OpFacts) -> list[str]:
    """Why two ops with the same key do not look the same; [] if they do."""
    reasons = []
    wider = WIDER.get(captured.dtype) if rules.promoted else None
    if wider is not None and executed.dtype == wider:
        reasons.append(_PROMOTED[wider])
    elif executed.compared and captured.kind == OpClass.GEMM:
        whole = captured.dtype.startswith(("i", "ui"))
        reasons.append(WIDENED_INTEGERS if whole else WIDENED)
    if captured.kind != executed.kind:
        reasons.append(SCATTERED)
    if captured.gemms and executed.gemms and sorted(captured.gemms) != sorted(executed.gemms):
        reasons.append(SWAPPED)
    if rules.recorded:
        return reasons + _names(captured, executed)
    if captured.kind == OpClass.CONVOLUTION:
        shapes, ran = (
            [shape for shape, _ in distinct_tensors(op.operands)] for op in (captured, executed)
        )
        reasons += [LAYOUT] if shapes != ran else []
    if captured.kind == executed.kind == OpClass.ALL_TO_ALL:
        reasons += [BUFFERS] if len(captured.parts or ()) != len(executed.parts or ()) else []
    return reasons


def _names(captured: OpFacts, executed: OpFacts) -> list[str]:
    """Why PyTorch's op has another name."""
    name, ran = last_name(captured.name), last_name(executed.name)
    if captured.kind.collective:
        return [ROOTED] if ran in TO_ROOT else [BARRIER] if ran == "barrier" else []
    kind = aten_class(captured.name)
    if kind == OpClass.GEMM and plain_name(captured.name) != plain_name(executed.name):
        return [ANOTHER_OP]
    if kind == OpClass.ATTENTION:
        return [ATTENTION] if name != ran else []
    if ran in LIBRARY_NAMES and LIBRARY_NAMES[ran] != ran and name != ran:
        return [LIBRARY]
    changed = name.endswith("_") != ran.endswith("_") and not captured.name.endswith(".out")
    return [IN_PLACE] if changed else []
