"""Instructions that are more than one record: tuples and control flow.

The idea: HLO carries several values as one tuple; records name every value.  So tuples exist only
during reading, as trees of value ids: making and taking apart a tuple rearranges ids and leaves no
record, a ``while`` over a tuple of N becomes a ``while`` with N operands and results, and a
branch's parameter is replaced by its argument.

    t = tuple(a, b);  w = while(t);  g = get-tuple-element(w), index=1
    -> Op("while", (a, b), (w0, w1), regions=(condition, body)); g is w1
"""

from __future__ import annotations

from typing import Any

from flint.hlo import attributes as read
from flint.hlo.async_fusions import CONTEXT, fused_collective
from flint.hlo.reading import Handler, Reading
from flint.hlo.scope import Scope
from flint.hlo.shapes import Tree, arrange, flatten, same_structure


def _parameter(reading: Reading, instruction: Any, scope: Scope) -> None:
    number = instruction.parameter_number
    if number in scope.parameters:
        raise ValueError(f"parameter {number} occurs twice")
    if scope.bound is None:
        tree = reading.new_values(instruction.shape)
    elif 0 <= number < len(scope.bound):
        tree = scope.bound[number]
    else:
        raise ValueError(f"the call passes {len(scope.bound)} values, none for parameter {number}")
    scope.parameters[number] = tree
    scope.bind(instruction.id, tree)


def _tuple(reading: Reading, instruction: Any, scope: Scope) -> None:
    tree = tuple([scope.tree(number) for number in instruction.operand_ids])
    # The written shape bounds the tree: tuples of tuples could otherwise grow without limit.
    if not same_structure(tree, reading.types.tree(instruction.shape)):
        raise ValueError("the operands do not match the tuple's shape")
    # Its written types are not used: its elements have the types of their operands.
    scope.bind(instruction.id, tree)


def _pass_on(reading: Reading, instruction: Any, scope: Scope, tree: Tree) -> None:
    """Bind existing values, if they have the types of the shape."""
    types, kind = reading.types.types, reading.value_type
    written = flatten(reading.types.tree(instruction.shape))
    given = flatten(tree)
    for number, value in zip(written, given, strict=False):
        one, other = types[kind[value]], types[number]
        if one.dtype != other.dtype or (one.shape != other.shape and not one.dynamic):
            raise ValueError(f"its shape has {other}, but {one} is passed on")
    if len(written) != len(given):
        raise ValueError(f"its shape has {len(written)} values, but {len(given)} are passed on")
    scope.bind(instruction.id, tree)


def _get_tuple_element(reading: Reading, instruction: Any, scope: Scope) -> None:
    tree = scope.tree(instruction.operand_ids[0])
    index = instruction.tuple_index
    if isinstance(tree, int) or not 0 <= index < len(tree):
        raise ValueError(f"the operand has no element {index}")
    _pass_on(reading, instruction, scope, tree[index])


def _forward(reading: Reading, instruction: Any, scope: Scope) -> None:
    _pass_on(reading, instruction, scope, scope.tree(instruction.operand_ids[0]))


def _add_dependency(reading: Reading, instruction: Any, scope: Scope) -> None:
    reading.warnings["add-dependency: its order is not kept"] += 1
    _forward(reading, instruction, scope)


def _after_all(reading: Reading, instruction: Any, scope: Scope) -> None:
    name = "after_all" if instruction.operand_ids else "create_token"
    reading.emit(name, instruction, scope)


def _while(reading: Reading, instruction: Any, scope: Scope) -> None:
    body_id, condition_id = instruction.called_computation_ids
    regions = (reading.region(condition_id), reading.region(body_id))
    op = reading.emit(
        "while", instruction, scope, read.while_loop(instruction, reading.context), regions
    )
    carried = len(op.operands)
    sizes = (len(op.results), len(regions[0].args), len(regions[1].args), len(regions[1].yields))
    if any(size != carried for size in sizes) or len(regions[0].yields) != 1:
        raise ValueError(f"the loop carries {carried} values, but its parts {sizes}")


def _conditional(reading: Reading, instruction: Any, scope: Scope) -> None:
    selector, *arguments = instruction.operand_ids
    branches = list(instruction.called_computation_ids)
    if not branches or len(branches) != len(arguments):
        raise ValueError(f"{len(branches)} branches for {len(arguments)} branch operands")
    index = scope.tree(selector)
    if not isinstance(index, int):
        raise ValueError("the branch index is a tuple")
    regions = tuple(
        [
            reading.captured(branch, [scope.tree(argument)], instruction)
            for branch, argument in zip(branches, arguments, strict=True)
        ]
    )
    is_predicate = reading.types.types[reading.value_type[index]].dtype == "i1"
    results = reading.new_values(instruction.shape)
    flat = flatten(results)
    if any(len(region.yields) != len(flat) for region in regions):
        raise ValueError("a branch and its conditional yield different numbers of values")
    name = "if" if is_predicate else "case"
    reading.append(name, instruction, scope, [index], flat, read.taken(instruction), regions)
    scope.bind(instruction.id, results)


def _call(reading: Reading, instruction: Any, scope: Scope) -> None:
    (callee,) = instruction.called_computation_ids
    name = reading.function(callee)
    if not instruction.is_composite:
        reading.emit("call", instruction, scope, {"callee": name})
        return
    stated = read.frontend_attributes(instruction)
    attrs = {"name": stated.get("composite.name", ""), "decomposition": name}
    reading.emit("composite", instruction, scope, attrs)


def _fusion(reading: Reading, instruction: Any, scope: Scope) -> None:
    (fused,) = instruction.called_computation_ids
    # What follows a dot ("loop_add_fusion.12.clone") only distinguishes instructions.
    kernel = str(instruction.name).partition(".")[0] or "fusion"
    attrs: dict[str, Any] = {"kind": instruction.fusion_kind, "name": kernel}
    in_place = read.aliases(instruction)
    if in_place:
        attrs["aliases"] = in_place
    body = reading.region(fused)
    op = reading.emit("fusion", instruction, scope, attrs, (body,))
    if len(op.operands) != len(body.args) or len(op.results) != len(body.yields):
        sizes = f"takes {len(body.args)} values, not {len(op.operands)}"
        raise ValueError(f"{sizes}, and gives {len(body.yields)}, not {len(op.results)}")
    found = fused_collective(op)
    if found is None:
        return
    records, instead = found
    scope.ops[-1:] = records
    scope.contexts += [record for record in records if record.name == CONTEXT]
    values = [instead.get(number, value) for number, value in enumerate(op.results)]
    scope.bind(instruction.id, arrange(tuple(values), reading.types.tree(instruction.shape)))


HANDLERS: dict[str, Handler] = {
    "add-dependency": _add_dependency,
    "after-all": _after_all,
    "call": _call,
    "conditional": _conditional,
    "domain": _forward,
    "fusion": _fusion,
    "get-tuple-element": _get_tuple_element,
    "parameter": _parameter,
    "tuple": _tuple,
    "while": _while,
}
