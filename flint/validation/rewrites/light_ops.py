"""Light ops that the CPU, or the host beside it, runs by itself, and those that it masks otherwise.

The idea: as in ``cpu_substitutes``, by ops that need no formula: what each of these is, its name
and its tensors say.

    on_numbers(matching)
"""

from __future__ import annotations

import math
import re
from collections import Counter

from flint.observed.classes import OpClass, base_name
from flint.observed.columns import OpFacts, Tensor
from flint.observed.selection import plain_name
from flint.validation.matching.pairing import Matching
from flint.validation.rewrites.cpu_substitutes import Free, key_of, shapes_of, unmatched_light

NUMBERS = "an op on single numbers or mesh coordinates, which stay on the host"
NOTHING = "an op on empty tensors, such as a rank's part of a parameter with fewer rows than ranks"
CHECKED = "the CPU checks the classes of one_hot; accelerators rely on the kernel that uses them"
ERRORS = "whether a factorisation failed is read by the host; captures assume that none does"
SPREAD = "the gradient of a maximum, which the CPU masks by another op"
CONJUGATES = "the conjugate of an operand, copied inside of the op that reads it"
_FOREACH = "_foreach_"
_FACTORISES = re.compile(r"_?linalg_")
ZEROS = "autograd makes zeros with another op in a capture, whose tensors are of a subclass"


def conjugates(matching: Matching) -> None:
    """Copies of conjugated operands, which PyTorch makes before ops that cannot read a conjugate
    (aten/src/ATen/ConjugateFallback.cpp), but within their range in a profile.
    """
    read = Counter(
        operand
        for _, j, _ in matching.pairs
        for operand in set(matching.executed[j].operands or ())
        if operand[1].startswith("complex")
    )
    for i in unmatched_light(matching)[0]:
        facts = matching.captured[i]
        if base_name(facts.name) == "clone" and facts.operands and read[facts.operands[0]]:
            read[facts.operands[0]] -= 1
            matching.explain(CONJUGATES, [i], [])


def on_numbers(matching: Matching) -> None:
    """Ops on tensors that captures know to be the host's; or, on a list of numbers that a capture
    has on the device (an optimizer's counters of steps), as many ops of the same name.
    """
    numbers: list[int] = []
    meshes: set[Tensor] = set()
    captured_ids, executed_ids = unmatched_light(matching)
    for j in executed_ids:
        facts = matching.executed[j]
        tensors = {tensor for tensor in facts.operands or () if tensor[0]}
        # A mesh is a tensor of ranks, and a rank looks for itself in it.
        if base_name(facts.name) == "nonzero" and tensors and tensors <= meshes:
            numbers.append(j)
        if facts.kind not in (OpClass.COPY, OpClass.ELEMENTWISE) or not facts.operands:
            continue
        mesh = base_name(facts.name) == "eq" and all(dtype == "i32" for _, dtype in tensors)
        if mesh:
            meshes |= {(shape, "i1") for shape, _ in tensors}
        if mesh or not tensors:
            numbers.append(j)
    ran = Counter(plain_name(matching.executed[j].name) for j in numbers)
    listed = []
    for i in captured_ids:
        facts = matching.captured[i]
        name, many = plain_name(facts.name).removeprefix(_FOREACH), len(facts.operands or ())
        if _FOREACH in facts.name and many and not shapes_of(facts) and ran[name] >= many:
            ran[name] -= many
            listed.append(i)
    matching.explain(NUMBERS, listed, numbers)


def on_nothing(matching: Matching) -> None:
    """Ops on empty tensors alone, which launch no kernels."""
    captured, executed = unmatched_light(matching)
    matching.explain(
        NOTHING,
        [i for i in captured if _is_empty(matching.captured[i])],
        [j for j in executed if _is_empty(matching.executed[j])],
    )


def _is_empty(facts: OpFacts) -> bool:
    shapes = shapes_of(facts)
    return bool(shapes) and not any(map(math.prod, shapes))


def checked(matching: Matching) -> None:
    """The range of the classes that a one-hot then scatters (aten/src/ATen/native/Onehot.cpp)."""
    scattered = Counter(
        shape[:-1]
        for _, j, _ in matching.pairs
        if base_name(matching.executed[j].name) == "scatter"
        for shape in shapes_of(matching.executed[j])
        if shape[-1] == 1
    )
    ranges = Counter({key_of("aminmax", shape): many for shape, many in scattered.items()})
    matching.explain(
        CHECKED, [], Free(matching.executed, unmatched_light(matching)[1]).take(ranges)
    )


def read_errors(matching: Matching) -> None:
    """A number for each of a batch of matrices, which is zero unless its factorisation failed, is
    read after it (``_linalg_check_errors`` in aten/src/ATen/native/BatchLinearAlgebra.cpp).
    """
    batches = Counter(
        key_of("any", max(shapes_of(matching.executed[j]), key=len)[:-2])
        for _, j, _ in matching.pairs
        if _FACTORISES.match(base_name(matching.executed[j].name))
        and shapes_of(matching.executed[j])
    )
    there = [
        j
        for j in unmatched_light(matching)[1]
        if {dtype for _, dtype in matching.executed[j].operands or ()} == {"i32"}
    ]
    matching.explain(ERRORS, [], Free(matching.executed, there).take(batches))


def spread(matching: Matching) -> None:
    """The gradient of a maximum over all elements (``evenly_distribute_backward`` in
    torch/csrc/autograd/FunctionsManual.cpp): where the value is, or where it and the input are not
    a number; the CPU looks first which of the two it needs.
    """
    captured_ids, executed_ids = unmatched_light(matching)
    captured = Free(matching.captured, captured_ids)
    executed = Free(matching.executed, executed_ids)
    for i in captured_ids:
        if base_name(matching.captured[i].name) != "isnan":
            continue
        for shape in shapes_of(matching.captured[i]):
            several = ("isnan", "logical_and", "logical_or", "mul")
            recorded = Counter(key_of(name, shape) for name in several)
            run = Counter([key_of("masked_fill", shape)])
            if captured.has(recorded) and executed.has(run):
                matching.explain(SPREAD, captured.take(recorded), executed.take(run))


def zeros(matching: Matching) -> None:
    """Zeros that autograd makes by ``new_zeros`` for subclasses of tensors, else by ``zeros``."""
    captured_ids, executed_ids = unmatched_light(matching)
    new = [i for i in captured_ids if base_name(matching.captured[i].name) == "new_zeros"]
    plain = [j for j in executed_ids if base_name(matching.executed[j].name) == "zeros"]
    for i, j in zip(new, plain, strict=False):
        matching.explain(ZEROS, [i], [j])
