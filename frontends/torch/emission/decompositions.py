"""Private functions of real StableHLO: the computation of an op's kernel with given types.

The idea: calls of one op with equal types, scalars and targets share a function, so that a model of
many equal layers has few.  Its parameters are the tensors that the lowering read, its results the
targets that it gave a value.

    found = decompositions.of(op, targets)
    composite(found.function, [read(parameter(views[at])) for at in found.operands])

Indices are often one column that is repeated along the other dims, of which memory has the column
only: the parameter is the column, and the function repeats it (``Operand.once``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from jaxlib.mlir.dialects import func

from flint.errors import FlintError
from flint.frontends.torch.emission import strided
from flint.frontends.torch.emission.estimated_kernels import substitute
from flint.frontends.torch.lowerings import dtypes, lowering_of
from flint.frontends.torch.lowerings import operations as build
from flint.frontends.torch.lowerings.calls import Call, Operand, Spec, Unsupported
from flint.frontends.torch.recording.effects import shown_name
from flint.frontends.torch.recording.recording import Op, View
from flint.stablehlo.read.bindings import ir

#: Types of indices.
_INDICES = ("int32", "int64")
#: Longest text of an argument that goes into messages, characters.
_SHOWN = 80


@dataclass(frozen=True, slots=True)
class Decomposition:
    """A function and how a call of it is wired.

    Attributes:
        function: symbol attribute of the function.
        name: the op's name as an attribute.
        operands: which of the op's tensors, counted in argument order, are its parameters.
        results: their MLIR types.
        targets: which of the op's targets they are the values of.
    """

    function: Any
    name: Any
    operands: tuple[int, ...]
    results: tuple[Any, ...]
    targets: tuple[int, ...]


class Decompositions:
    """The decompositions of a module, one per signature."""

    def __init__(self, module: Any, strict: bool) -> None:
        """``strict``: refuse ops that the table of lowerings lacks."""
        self.module = module
        self.strict = strict
        #: The substitute for a lowering, with the number of ops that use it.
        self.warnings: Counter[str] = Counter()
        self._known: dict[Any, Decomposition] = {}
        self._assumed: dict[Any, str] = {}
        self._names: Counter[str] = Counter()

    def of(self, op: Op, targets: Sequence[View]) -> Decomposition:
        """The decomposition of an op.

        Raises:
            FlintError: the op has no lowering and ``strict`` is set.
        """
        key = (
            op.name,
            _signature(op.args),
            tuple((name, _signature(item)) for name, item in op.kwargs.items()),
            tuple((view.shape, view.dtype) for view in targets),
            op.exact,
        )
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._build(key, op, targets)
        if key in self._assumed:
            self.warnings[self._assumed[key]] += 1
        return found

    def _build(self, key: Any, op: Op, targets: Sequence[View]) -> Decomposition:
        symbol = f"{op.name}.{self._names[op.name]}" if self._names[op.name] else op.name
        self._names[op.name] += 1
        with ir.Location.unknown(), ir.InsertionPoint(self.module.body):
            function = func.FuncOp(symbol, ir.FunctionType.get([], []))
        function.attributes["sym_visibility"] = ir.StringAttr.get("private")
        block = ir.Block.create_at_start(function.body, [])
        operands: list[int] = []
        specs = tuple(Spec(view.shape, view.dtype) for view in targets)
        call = Call(op.name, specs)
        count = 0

        def opened(item: Any) -> Any:
            nonlocal count
            if isinstance(item, View):
                number, spec = count, Spec(item.shape, item.dtype)
                given, kept = parameter(item), kept_dims(item)
                count += 1

                def ask() -> Any:
                    operands.append(number)
                    place = ir.Location.unknown()
                    return block.add_argument(build.tensor(given.shape, given.dtype), place)

                return Operand(spec, ask, item.numbers, kept)
            if isinstance(item, tuple | list):
                return tuple(opened(part) for part in item)
            return item

        args = [opened(item) for item in op.args]
        kwargs = {name: opened(item) for name, item in op.kwargs.items()}
        with ir.Location.unknown(), ir.InsertionPoint(block):
            with build.products(exact=op.exact):
                values = self._values(key, call, args, kwargs, block)
            fitted = [
                (at, _fitted(call, value, spec))
                for at, (value, spec) in enumerate(zip(values, specs, strict=True))
                if value is not None
            ]
            func.ReturnOp([value for _, value in fitted])
        types = [value.type for _, value in fitted]
        kind = ir.FunctionType.get([item.type for item in block.arguments], types)
        function.attributes["function_type"] = ir.TypeAttr.get(kind)
        return Decomposition(
            ir.FlatSymbolRefAttr.get(symbol),
            ir.StringAttr.get(shown_name(op)),
            tuple(operands),
            tuple(types),
            tuple(at for at, _ in fitted),
        )

    def _values(
        self, key: Any, call: Call, args: list[Any], kwargs: dict[str, Any], block: Any
    ) -> list[Any]:
        lowering = lowering_of(call.name)
        reason = f"{call.name} has no lowering"
        if lowering is not None:
            try:
                values = lowering(call, *args, **kwargs)
                for made in block.operations:
                    made.operation.verify()
            except Unsupported as error:
                named = call.name in str(error)
                reason = f"no lowering: {error if named else f'{call.name}: {error}'}"
            except (TypeError, ValueError, IndexError, KeyError, ir.MLIRError) as error:
                # An overload with other arguments than those that are known.
                shown = (str(error).splitlines() or [type(error).__name__])[0][:_SHOWN]
                reason = f"{call.name} cannot be lowered with its arguments ({shown})"
            else:
                values = list(values) if isinstance(values, tuple | list) else [values]
                if len(values) != len(call.targets):
                    raise FlintError(
                        f"{call.name}: {len(values)} values for {len(call.targets)} targets"
                    )
                return values
        for begun in reversed(list(block.operations)):
            begun.operation.erase()
        if self.strict:
            raise FlintError(f"{reason}; without --strict it is a kernel of estimated FLOPs")
        values, how = substitute(call, args, kwargs)
        self._assumed[key] = f"{reason}: {how}"
        return values


def parameter(view: View) -> View:
    """What a function takes of a tensor: all of it, and of repeated indices one."""
    return view if kept_dims(view) is None else strided.once(view)[0]


def kept_dims(view: View) -> tuple[int, ...] | None:
    """The dims of an index along which it is not repeated; None if it is not, or no index."""
    repeats = view.dtype in _INDICES and strided.overlaps_itself(view)
    return strided.once(view)[1] if repeats else None


def _signature(item: Any) -> Any:
    """An argument as it enters a key: of a view, its type; 1, 1.0 and True are not the same."""
    if isinstance(item, View):
        return item.shape, item.dtype, item.numbers, kept_dims(item)
    if isinstance(item, tuple | list):
        return tuple([_signature(part) for part in item])
    return type(item), item if isinstance(item, str | bool | int | float) else repr(item)


def _fitted(call: Call, value: Any, spec: Spec) -> Any:
    """A lowering's value in its target's dtype; its shape must be the target's.

    Raises:
        FlintError: another shape.
    """
    if build.shape_of(value) != spec.shape:
        raise FlintError(
            f"{call.name}: the lowering gives {list(build.shape_of(value))}, "
            f"the recording {list(spec.shape)}"
        )
    if dtypes.is_complex(build.dtype_of(value)) and not dtypes.is_complex(spec.dtype):
        raise FlintError(f"{call.name}: the lowering gives a complex value for {spec.dtype}")
    return build.convert(value, spec.dtype)
