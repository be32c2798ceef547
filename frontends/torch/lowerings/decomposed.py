"""Ops that PyTorch itself can decompose: its decomposition runs, and each part is lowered.

The idea: for hundreds of ops PyTorch defines in Python what they compute, in terms of other ops
(``torch._decomp``).  If the table of lowerings lacks an op, its decomposition is run on meta
tensors, which have types and no values; every op that it calls is lowered as it is called, so that
the lowerings of those ops also serve the ops composed of them.  It stays one kernel, as PyTorch
launches one.  The Python function of a program's own ``torch.library.custom_op`` serves alike.

    decomposition_of("aten.glu_backward.default")(call, grad, x, -1)

Lowerings of Flint may be written in this way, too (``@in_torch`` of ``table.py``).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch
from torch._decomp import decomposition_table

from flint.frontends.torch.lowerings import dtypes, own_ops
from flint.frontends.torch.lowerings import operations as op
from flint.frontends.torch.lowerings.calls import Call, Operand, Spec, Unsupported, axis, outputs_of
from flint.frontends.torch.lowerings.operations import Value
from flint.frontends.torch.modes import dispatch_mode

#: Finds the lowering of an op's name.
Find = Callable[[str], Callable[..., Any] | None]


def decomposition_of(name: str, find: Find) -> Callable[..., Any] | None:
    """A lowering of "namespace.op.overload" by PyTorch's decomposition, or None if it has none.

    Args:
        find: the lowering of what it is made of.
    """
    function = _decomposition(name)
    return None if function is None else functools.partial(lowered_in_torch, function, find)


#: Kernels of FSDP2 that are copies of ATen's.
_COPIES = {"fsdp.chunk_cat.default": "aten._chunk_cat.default"}


@functools.cache
def _decomposition(name: str) -> Callable[..., Any] | None:
    namespace, base, *rest = _COPIES.get(name, name).split(".")
    if namespace != "aten" or not rest:
        return own_ops.function_of(name)
    plain = base[:-1] if base.endswith("_") and not base.endswith("__") else base
    kind = rest[0]
    if outputs_of(name):  # it computes what the variant without them does
        kind = kind.removesuffix("_out") if kind.endswith("_out") else "default"
    for each in (plain, base):
        packet = getattr(torch.ops.aten, each, None)
        overload = getattr(packet, kind, None)
        if overload is not None and overload in decomposition_table:
            found: Callable[..., Any] = decomposition_table[overload]
            return found
    return None


def lowered_in_torch(
    function: Callable[..., Any], find: Find, call: Call, *args: Any, widened: bool = False,
    **kwargs: Any,
) -> list[Value]:  # fmt: skip
    """The values of a call by a function of tensors.

    Args:
        function: of the call's arguments.
        find: the lowering of what it is made of.
        call, args, kwargs: as a lowering has them.
        widened: pass the tensors in the types in which kernels compute.
    """
    parts = _Parts(find, widened)
    given = [parts.opened(item) for item in args]
    outputs = outputs_of(call.name)
    named = {name: parts.opened(item) for name, item in kwargs.items() if name not in outputs}
    with torch.no_grad(), dispatch_mode(parts.see):
        result = on_shapes(call.name, function, given, named)
    results = result if isinstance(result, tuple | list) else (result,)
    values = [parts.value_of(item) for item in results if item is not None]
    for value, spec in zip(values, call.targets, strict=False):
        if op.shape_of(value) != spec.shape:
            raise Unsupported(f"{call.name}: its decomposition gives {list(op.shape_of(value))}")
    if len(values) != len(call.targets):
        raise Unsupported(f"{call.name}: its decomposition gives {len(values)} results")
    return values


def on_shapes(
    name: str, function: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]
) -> Any:
    """What a function of PyTorch or of a program returns for meta tensors.

    Raises:
        Unsupported: it reads values, or does more than to call ops.
    """
    try:
        return function(*args, **kwargs)
    except Unsupported:
        raise
    except Exception as error:
        what = (str(error).splitlines() or [""])[0][:80]
        raise Unsupported(f"{name}: its function fails on shapes alone ({what})") from error


def as_given(item: Any, tensor: Callable[[Operand], torch.Tensor]) -> Any:
    """A recorded argument as PyTorch's functions take it.

    Args:
        item: operands, names of dtypes, numbers, sequences of them.
        tensor: what stands for an operand.
    """
    if isinstance(item, Operand):
        return tensor(item)
    if isinstance(item, tuple | list):
        return [as_given(part, tensor) for part in item]
    if isinstance(item, str) and item.startswith("torch."):
        return getattr(torch, item.removeprefix("torch."), None)
    return item


class _Parts:
    """Meta tensors and the values that stand for them."""

    def __init__(self, find: Find, widened: bool) -> None:
        self._find = find
        self._widened = widened
        self._known: dict[int, tuple[Any, Callable[[], Value]]] = {}

    def opened(self, item: Any) -> Any:
        """An argument with meta tensors for operands, and dtypes for their names."""
        return as_given(item, self._tensor)

    def _tensor(self, item: Operand) -> torch.Tensor:
        dtype = dtypes.compute_dtype(item.dtype) if self._widened else item.dtype
        made = torch.empty(item.shape, dtype=dtypes.torch_dtype(dtype), device="meta")
        self._known[id(made)] = made, functools.cache(lambda: op.convert(item.value, dtype))
        return made

    def value_of(self, tensor: Any) -> Value:
        """The value of a tensor."""
        known = self._known.get(id(tensor))
        if known is None:
            raise Unsupported("a tensor that no op of the decomposition created")
        return known[1]()

    def see(self, func: Any, _: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Lower an op of the decomposition."""
        name = str(func)
        if func.namespace == "prim" or name in _ASKING:
            return func(*args, **kwargs)
        if func._schema.is_mutable:
            raise Unsupported(f"its decomposition writes in place ({name})")
        view = _VIEWS.get(func._schema.name.removeprefix("aten::"))
        if view is None and self._find(_PRIMS.get(name, name)) is None:
            # PyTorch leaves composite ops whole below autograd and in inference mode.
            with dispatch_mode(self.see):
                composed = func.decompose(*args, **kwargs)
            if composed is not NotImplemented:
                return composed
        result = func(*args, **kwargs)
        results = result if isinstance(result, tuple | list) else (result,)
        made: Iterable[Value]
        if view is not None:
            made = view(self.value_of(args[0]), [tuple(item.shape) for item in results], *args[1:])
        else:
            made = self._called(name, args, kwargs, results)
        for tensor, value in zip(results, made, strict=True):
            self._known[id(tensor)] = tensor, functools.partial(_same, value)
        return result

    def _called(
        self, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], results: Any
    ) -> list[Value]:
        name = _PRIMS.get(name, name)
        lowering = self._find(name)
        if lowering is None:
            raise Unsupported(f"{name}, which it contains, has no lowering")
        specs = tuple(Spec(tuple(item.shape), dtypes.torch_name(item.dtype)) for item in results)
        given = [self._operand(item) for item in args]
        named = {key: self._operand(item) for key, item in kwargs.items()}
        values = lowering(Call(name, specs), *given, **named)
        values = values if isinstance(values, tuple | list) else [values]
        return [op.convert(value, spec.dtype) for value, spec in zip(values, specs, strict=True)]

    def _operand(self, item: Any) -> Any:
        if isinstance(item, torch.Tensor):
            spec = Spec(tuple(item.shape), dtypes.torch_name(item.dtype))
            if id(item) in self._known:
                return Operand(spec, self._known[id(item)][1])
            if not item.shape:  # a number of ``new_tensor``, which no mode sees; it changes no work
                return Operand(spec, functools.partial(op.constant, 1, (), spec.dtype))
            raise Unsupported("its decomposition takes a tensor of its own")
        if isinstance(item, tuple | list):
            return tuple(self._operand(part) for part in item)
        if isinstance(item, torch.dtype | torch.layout | torch.device | torch.memory_format):
            return str(item)
        return item


def _same(value: Value) -> Value:
    return value


#: Ops that query a tensor and create none.
_ASKING = frozenset(("aten.is_same_size.default", "aten.sym_size.int", "aten.sym_numel.default"))

#: Names of primitives -> those of the ATen ops that they are.
_PRIMS = {
    "prims.convert_element_type.default": "aten._to_copy.default",
    "prims.where.default": "aten.where.self",
    "prims.fmax.default": "aten.fmax.default",
    **{
        f"prims.{name}.default": f"aten.{name}.default"
        for name in ("abs", "neg", "exp", "log", "sqrt", "rsqrt", "tanh", "erf", "sign", "floor")
    },
    **{f"prims.{name}.default": f"aten.{name}.Tensor" for name in ("add", "sub", "mul", "div")},
}  # fmt: skip


# Views: of a value, shapes of the results, further arguments.


def _reshaped(value: Value, shapes: list[tuple[int, ...]], *_: Any) -> Iterator[Value]:
    yield op.reshape(value, shapes[0])


def _expanded(value: Value, shapes: list[tuple[int, ...]], *_: Any) -> Iterator[Value]:
    yield op.broadcast(value, shapes[0])


def _permuted(value: Value, _: Any, dims: Any) -> Iterator[Value]:
    rank = len(op.shape_of(value))
    yield op.transpose(value, [axis(dim, rank) for dim in dims])


def _transposed(value: Value, _: Any, one: int, other: int) -> Iterator[Value]:
    order = list(range(len(op.shape_of(value))))
    a, b = axis(one, len(order)), axis(other, len(order))
    if order:
        order[a], order[b] = order[b], order[a]
    yield op.transpose(value, order)


def _matrix_transposed(value: Value, _: Any) -> Iterator[Value]:
    yield op.transpose(value, list(reversed(range(len(op.shape_of(value))))))


def _sliced(
    value: Value, shapes: list[tuple[int, ...]], dim: int = 0, start: Any = None, end: Any = None,
    step: int = 1,
) -> Iterator[Value]:  # fmt: skip
    shape = op.shape_of(value)
    along = axis(dim, len(shape))
    size = shape[along]
    first, last = (
        min(max(at + size if at < 0 else at, 0), size)
        for at in (start or 0, size if end is None else end)
    )
    yield op.slice_dim(value, along, first, max(first, last), step)


def _selected(value: Value, shapes: list[tuple[int, ...]], dim: int, index: int) -> Iterator[Value]:
    shape = op.shape_of(value)
    along = axis(dim, len(shape))
    at = index % shape[along]
    yield op.reshape(op.slice_dim(value, along, at, at + 1), shapes[0])


def _split(
    value: Value, shapes: list[tuple[int, ...]], _sizes: Any = None, dim: int = 0
) -> Iterator[Value]:
    along, start = axis(dim, len(op.shape_of(value))), 0
    for shape in shapes:
        yield op.slice_dim(value, along, start, start + shape[along])
        start += shape[along]


def _unbound(value: Value, shapes: list[tuple[int, ...]], dim: int = 0) -> Iterator[Value]:
    along = axis(dim, len(op.shape_of(value)))
    for at, shape in enumerate(shapes):
        yield op.reshape(op.slice_dim(value, along, at, at + 1), shape)


_VIEWS: Mapping[str, Callable[..., Iterator[Value]]] = {
    **dict.fromkeys(
        (
            "view", "_unsafe_view", "reshape", "_reshape_alias", "unsqueeze", "squeeze", "alias",
            "detach", "lift_fresh", "flatten",
        ),
        _reshaped,
    ),
    "expand": _expanded, "permute": _permuted, "transpose": _transposed, "t": _matrix_transposed,
    "slice": _sliced, "select": _selected, "split": _split, "split_with_sizes": _split,
    "unbind": _unbound,
}  # fmt: skip
