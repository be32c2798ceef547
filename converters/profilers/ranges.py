"""What a range that a program marks (NVTX, ROCTX) says about the op inside of it.

The idea: PyTorch's ``emit_nvtx`` writes an op and its shapes as text.  PyProf (NVIDIA's, for Apex
and DLProf) writes Python dictionaries: a call of a function with its arguments, the module around
it, and the lines that led there.  Other ranges are named by users.

    op_of("aten::mm, seq = 3, op_id = 7, sizes = [[2, 3], [3, 4]]")
    described("{'mod': 'torch.nn.functional', 'op': 'linear', 'args': [...]}")
"""

from __future__ import annotations

import ast
import json
import re
from typing import Any, Final, NamedTuple

from flint.post_execution.source_lines import names_line

#: ``aten::mm, seq = 3, op_id = 7, sizes = [[2, 3], [3, 4]]``, as PyTorch's ``emit_nvtx`` writes it.
_OF_TORCH: Final = re.compile(r"([\w:.~#]+), (?:seq|op_id|sizes|input_op_ids) = ")
_SIZES: Final = re.compile(r"sizes = (\[.*?\])(?:, \w+ = |$)")
_LONGEST_NAME: Final = 120
#: PyProf's dictionaries, by their first key, and the most characters of one.
_DICTIONARY: Final = re.compile(r"\{['\"](mod|op|traceMarker)['\"]: ")
_LONGEST: Final = 1 << 16
#: Where PyProf found functions whose arguments are those of the ops with their names.
_OF_ATEN: Final = frozenset(
    {"torch", "torch.functional", "torch.nn.functional", "Tensor", "torch.Tensor", "torch._tensor"}
)
#: Names of operators, and those of their ops that are others.
_OPERATOR: Final = re.compile(r"__[ir]?(add|sub|mul|truediv|floordiv|pow|matmul|neg|abs)__")
_OTHERWISE: Final = {
    "truediv": "div",
    "floordiv": "floor_divide",
    "cross_entropy": "cross_entropy_loss",
}
#: Functions whose tensors come in another order than the op's.
_ORDER: Final = {"embedding": (1, 0), "batch_norm": (0, 3, 4, 1, 2)}
_PLACE: Final = re.compile(r"^(.+\.py):(\d{1,9})$")
#: The most calls that lead to an op.
_MOST: Final = 1 << 10


class Range(NamedTuple):
    """A range.

    Attributes:
        name: the op's name; "" if it is none.
        arguments: its arguments, in Kineto's form.
        frame: a line of the user's code or a module, as Kineto writes them; "" if it is none.
    """

    name: str
    arguments: dict[str, Any]
    frame: str = ""


def described(text: str) -> Range:
    """What a range is, by its text."""
    if not _DICTIONARY.match(text) or len(text) > _LONGEST:
        return _of_torch(text)
    try:
        found = ast.literal_eval(text) if text[1] == "'" else json.loads(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):  # cut off, for example
        return _of_torch(text)
    if not isinstance(found, dict):
        return _of_torch(text)
    lines = found.get("traceMarker")
    if isinstance(lines, list):
        calls = [_PLACE.sub(r"\1(\2): ", str(line)) for line in reversed(lines[:_MOST])]
        return Range("", {}, next(filter(names_line, calls), ""))
    module, op = str(found.get("mod", "")), found.get("op")
    if not isinstance(op, str):
        return Range("", {}, f"nn.Module: {module[:_LONGEST_NAME]}" if module else "")
    given = found.get("args")
    return _of_pyprof(module, op, given if isinstance(given, list) else [])


def _of_torch(text: str) -> Range:
    """An op of PyTorch's own ranges with the shapes of its tensors, or a user's range."""
    torch = _OF_TORCH.match(text)
    if torch is None:
        return Range(text[:_LONGEST_NAME], {})
    sizes = _SIZES.search(text)
    try:
        dims = json.loads(sizes[1]) if sizes else None
    except (ValueError, RecursionError):
        dims = None
    if not isinstance(dims, list):
        return Range(torch[1], {})
    return Range(torch[1], {"Input Dims": dims, "Input type": [_type(item) for item in dims]})


def _type(dims: object) -> str:
    """The type of an argument with known sizes, without its element type."""
    if not isinstance(dims, list) or not dims:
        return ""
    if isinstance(dims[0], list):
        return f"GenericList[{','.join('Tensor()' for _ in dims)}]"
    return "Tensor()"


def _of_pyprof(module: str, op: str, given: list[Any]) -> Range:
    """A call that PyProf describes; arguments that were given by name have no place in the op."""
    if module not in _OF_ATEN:
        return Range(f"{module}.{op}"[:_LONGEST_NAME], {})
    operator = _OPERATOR.fullmatch(op)
    base = operator[1] if operator else op
    placed = [item for item in given if isinstance(item, dict) and not item.get("name")]
    order = _ORDER.get(base, range(len(placed)))
    placed = [placed[place] for place in order] if len(order) <= len(placed) else []
    columns: dict[str, Any] = {"Input Dims": [], "Input type": [], "Concrete Inputs": []}
    for item in placed:
        for column, value in zip(columns.values(), _argument(item), strict=True):
            column.append(value)
    return Range(f"aten::{_OTHERWISE.get(base, base)}"[:_LONGEST_NAME], columns)


def _argument(item: dict[str, Any]) -> tuple[Any, str, str]:
    """Sizes, type and value of an argument, in Kineto's form."""
    kind, shape, dtype = item.get("type"), item.get("shape"), item.get("dtype")
    if kind == "tensor" and isinstance(shape, tuple | list):
        return list(shape), str(dtype), ""
    if kind == "seqtensor" and isinstance(shape, list) and isinstance(dtype, list):
        types = ",".join(f"Tensor({name})" for name in dtype)
        return (
            [list(one) for one in shape if isinstance(one, tuple | list)],
            f"GenericList[{types}]",
            "",
        )
    value = item.get("value", "")
    return [], "Scalar", str(list(value) if isinstance(value, tuple) else value)
