"""Generate a large unrolled module: one device's share of a transformer's training step.

The idea: benchmarks need modules of any size that are the same everywhere, without a model, a
download or an accelerator.  Every layer is a copy of one block (gathers of sharded weights, norms,
rotary attention, gated MLP, reductions of activations; then it again, its gradients reduced and
sharded, and AdamW on every weight), written op by op as a partitioner would leave it.  Shapes,
bytes and communications are those of such a step; the arithmetic is only like it.

    python benchmarks/modules.py --layers 32 llama_32.mlirbc
    python benchmarks/modules.py --ops 110000 --form hlo llama_110k.hlo.pb

Longer than 300 lines because every op of a layer is written once by hand, as a partitioner leaves
it.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

FORMS = ("text", "bytecode", "hlo")
#: Devices along the data and along the tensor axis.
DATA, TENSOR = 64, 8
TOKENS, MODEL, HEADS, HEAD, MLP = 1024, 4096, 4, 128, 1792
#: Weights of a layer: name -> shape on a device before the gather along the data axis.
WEIGHTS = {
    "query": (MODEL // DATA, HEADS * HEAD),
    "key": (MODEL // DATA, HEADS * HEAD),
    "value": (MODEL // DATA, HEADS * HEAD),
    "output": (HEADS * HEAD // 64, MODEL),
    "gate": (MODEL // DATA, MLP),
    "up": (MODEL // DATA, MLP),
    "down": (MLP // 64, MODEL),
}


class Value(NamedTuple):
    """An SSA value."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def type(self) -> str:
        """The value's MLIR type."""
        return f"tensor<{'x'.join([*map(str, self.shape), self.dtype])}>"


class Writer:
    """Writes ops; methods return the result's value."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.ops = 0
        self.scope = ""

    def emit(self, op: str, operands: tuple[Value, ...], result: Value, rest: str = "") -> Value:
        """Write ``op`` in generic form."""
        names = ", ".join(item.name for item in operands)
        types = ", ".join(item.type for item in operands)
        place = f'loc("jit(step)/{self.scope}/{op}"("model.py":{self.ops % 400 + 1}:4))'
        self.lines.append(
            f'    {result.name} = "stablehlo.{op}"({names}) {rest} : '
            f"({types}) -> {result.type} {place}"
        )
        self.ops += 1
        return result

    def new(self, shape: tuple[int, ...], dtype: str) -> Value:
        """A fresh value."""
        return Value(f"%{self.ops}", shape, dtype)

    def each(self, op: str, *operands: Value) -> Value:
        """An elementwise op."""
        return self.emit(op, operands, self.new(operands[0].shape, operands[0].dtype))

    def constant(self, number: float, shape: tuple[int, ...], dtype: str = "f32") -> Value:
        """A splat."""
        made = self.new(shape, dtype)
        digits = f"{number:d}" if isinstance(number, int) else f"{number:e}"
        return self.emit("constant", (), made, f"{{value = dense<{digits}> : {made.type}}}")

    def convert(self, x: Value, dtype: str) -> Value:
        """Another element type."""
        return self.emit("convert", (x,), self.new(x.shape, dtype))

    def broadcast(self, x: Value, dims: tuple[int, ...], shape: tuple[int, ...]) -> Value:
        """``broadcast_in_dim``."""
        rest = f"{{broadcast_dimensions = array<i64{': ' if dims else ''}{_list(dims)}>}}"
        return self.emit("broadcast_in_dim", (x,), self.new(shape, x.dtype), rest)

    def reshape(self, x: Value, shape: tuple[int, ...]) -> Value:
        """``reshape``."""
        return self.emit("reshape", (x,), self.new(shape, x.dtype))

    def transpose(self, x: Value, order: tuple[int, ...]) -> Value:
        """``transpose``."""
        rest = f"{{permutation = array<i64: {_list(order)}>}}"
        return self.emit(
            "transpose", (x,), self.new(tuple(x.shape[i] for i in order), x.dtype), rest
        )

    def half(self, x: Value, which: int) -> Value:
        """One half of the last dim, by ``slice``."""
        size = x.shape[-1] // 2
        start = (0,) * (len(x.shape) - 1) + (which * size,)
        limit = (*x.shape[:-1], (which + 1) * size)
        rest = (
            f"{{start_indices = array<i64: {_list(start)}>, limit_indices = array<i64: "
            f"{_list(limit)}>, strides = array<i64: {_list((1,) * len(x.shape))}>}}"
        )
        return self.emit("slice", (x,), self.new((*x.shape[:-1], size), x.dtype), rest)

    def concatenate(self, a: Value, b: Value) -> Value:
        """Along the last dim."""
        shape = (*a.shape[:-1], a.shape[-1] + b.shape[-1])
        rest = f"{{dimension = {len(shape) - 1} : i64}}"
        return self.emit("concatenate", (a, b), self.new(shape, a.dtype), rest)

    def reduce(self, x: Value, dim: int, op: str = "add") -> Value:
        """One dim away."""
        zero = self.constant(0.0, (), x.dtype)
        shape = tuple(size for i, size in enumerate(x.shape) if i != dim)
        return self.emit(
            "reduce",
            (x, zero),
            self.new(shape, x.dtype),
            _region(op, x.dtype, f"dimensions = array<i64: {dim}>"),
        )

    def dot(self, a: Value, b: Value, over: tuple[int, int], batch: int = 0) -> Value:
        """``dot_general`` over one dim of each, the first ``batch`` dims being batch dims."""
        dims = tuple(range(batch))
        free_a = [size for i, size in enumerate(a.shape) if i >= batch and i != over[0]]
        free_b = [size for i, size in enumerate(b.shape) if i >= batch and i != over[1]]
        batching = f"[{_list(dims)}]"
        numbers = (
            f"lhs_batching_dimensions = {batching}, rhs_batching_dimensions = {batching}, "
            f"lhs_contracting_dimensions = [{over[0]}], rhs_contracting_dimensions = [{over[1]}]"
        )
        rest = f"{{dot_dimension_numbers = #stablehlo.dot<{numbers}>}}"
        shape = (*a.shape[:batch], *free_a, *free_b)
        return self.emit("dot_general", (a, b), self.new(shape, a.dtype), rest)

    def all_gather(self, x: Value) -> Value:
        """Dim 0 along the data axis."""
        rest = f"{{all_gather_dim = 0 : i64, {self._communicator('data')}}}"
        return self.emit(
            "all_gather", (x,), self.new((x.shape[0] * DATA, *x.shape[1:]), x.dtype), rest
        )

    def all_reduce(self, x: Value, axis: str) -> Value:
        """The sum along an axis."""
        rest = _region("add", x.dtype, self._communicator(axis))
        return self.emit("all_reduce", (x,), self.new(x.shape, x.dtype), rest)

    def shard(self, x: Value, index: Value, zero: Value) -> Value:
        """This device's rows of dim 0, along the data axis."""
        rows = x.shape[0] // DATA
        size = self.constant(rows, (), "i32")
        start = self.each("multiply", index, size)
        shape = (rows, *x.shape[1:])
        rest = f"{{slice_sizes = array<i64: {_list(shape)}>}}"
        return self.emit("dynamic_slice", (x, start, zero), self.new(shape, x.dtype), rest)

    def _communicator(self, axis: str) -> str:
        channel = f"channel_handle = #stablehlo.channel_handle<handle = {self.ops + 1}, type = 1>"
        return f"{channel}, replica_groups = #{axis}, use_global_device_ids"


def _list(items: tuple[int, ...]) -> str:
    return ", ".join(map(str, items))


def _region(op: str, dtype: str, attributes: str) -> str:
    return (
        f"({{ ^bb0(%l: tensor<{dtype}>, %r: tensor<{dtype}>): "
        f'%c = "stablehlo.{op}"(%l, %r) : (tensor<{dtype}>, tensor<{dtype}>) -> tensor<{dtype}> '
        f'"stablehlo.return"(%c) : (tensor<{dtype}>) -> () }}) {{{attributes}}}'
    )


def _norm(w: Writer, x: Value, scale: Value) -> Value:
    wide = w.convert(x, "f32")
    total = w.reduce(w.each("multiply", wide, wide), 1)
    mean = w.each("divide", total, w.constant(float(MODEL), total.shape))
    inverse = w.each("rsqrt", w.each("add", mean, w.constant(1e-5, mean.shape)))
    scaled = w.each("multiply", wide, w.broadcast(inverse, (0,), x.shape))
    return w.each("multiply", w.convert(scaled, "bf16"), w.broadcast(scale, (1,), x.shape))


def _rotated(w: Writer, x: Value, cosine: Value, sine: Value) -> Value:
    wide = w.convert(w.reshape(x, (TOKENS, HEADS, HEAD)), "f32")
    a, b = w.half(wide, 0), w.half(wide, 1)
    c, s = (w.broadcast(item, (0, 2), a.shape) for item in (cosine, sine))
    first = w.each("subtract", w.each("multiply", a, c), w.each("multiply", b, s))
    second = w.each("add", w.each("multiply", b, c), w.each("multiply", a, s))
    return w.transpose(w.convert(w.concatenate(first, second), "bf16"), (1, 0, 2))


def _softmax(w: Writer, x: Value) -> Value:
    wide = w.convert(x, "f32")
    shifted = w.each("subtract", wide, w.broadcast(w.reduce(wide, 2, "maximum"), (0, 1), x.shape))
    grown = w.each("exponential", shifted)
    total = w.broadcast(w.reduce(grown, 2), (0, 1), x.shape)
    return w.convert(w.each("divide", grown, total), "bf16")


def _gathered(w: Writer, weights: dict[str, Value]) -> dict[str, Value]:
    whole = {}
    for name, item in weights.items():
        w.scope = f"layer/{name}"
        whole[name] = w.all_gather(w.convert(item, "bf16"))
    return whole


def _forward(w: Writer, x: Value, weights: dict[str, Value], tables: tuple[Value, ...]) -> Value:
    scale, cosine, sine = tables
    whole = _gathered(w, weights)
    w.scope = "layer/attention"
    h = _norm(w, x, scale)
    q = _rotated(w, w.dot(h, whole["query"], (1, 0)), cosine, sine)
    k = _rotated(w, w.dot(h, whole["key"], (1, 0)), cosine, sine)
    v = w.reshape(w.dot(h, whole["value"], (1, 0)), (TOKENS, HEADS, HEAD))
    weight = _softmax(w, w.dot(q, k, (2, 2), batch=1))
    mixed = w.dot(weight, w.transpose(v, (1, 0, 2)), (2, 1), batch=1)
    flat = w.reshape(w.transpose(mixed, (1, 0, 2)), (TOKENS, HEADS * HEAD))
    x = w.each("add", x, w.all_reduce(w.dot(flat, whole["output"], (1, 0)), "tensor"))
    w.scope = "layer/mlp"
    h = _norm(w, x, scale)
    gate, up = w.dot(h, whole["gate"], (1, 0)), w.dot(h, whole["up"], (1, 0))
    product = w.each("multiply", w.each("multiply", gate, w.each("logistic", gate)), up)
    return w.each("add", x, w.all_reduce(w.dot(product, whole["down"], (1, 0)), "tensor"))


def _update(w: Writer, weight: Value, moments: tuple[Value, Value], gradient: Value) -> list[Value]:
    """AdamW on one weight: the new weight and moments."""
    g = w.convert(gradient, "f32")
    new = []
    for moment, decay, change in zip(
        moments, (0.9, 0.95), (g, w.each("multiply", g, g)), strict=True
    ):
        kept = w.each("multiply", moment, w.constant(decay, g.shape))
        new.append(w.each("add", kept, w.each("multiply", change, w.constant(1 - decay, g.shape))))
    first, second = (
        w.each("divide", item, w.constant(bias, g.shape))
        for item, bias in zip(new, (0.1, 0.05), strict=True)
    )
    root = w.each("add", w.each("sqrt", second), w.constant(1e-8, g.shape))
    step = w.each("divide", first, root)
    decayed = w.each("multiply", weight, w.constant(0.1, g.shape))
    whole = w.each("multiply", w.each("add", step, decayed), w.constant(1e-4, g.shape))
    return [w.each("subtract", weight, whole), *new]


def _layer(
    w: Writer,
    x: Value,
    state: list[tuple[Value, Value, Value]],
    tables: tuple[Value, ...],
    place: tuple[Value, Value],
) -> tuple[Value, list[Value]]:
    weights = {name: item[0] for name, item in zip(WEIGHTS, state, strict=True)}
    out = _forward(w, x, weights, tables)
    again = _forward(w, out, weights, tables)
    results: list[Value] = []
    for name, (weight, *moments) in zip(WEIGHTS, state, strict=True):
        w.scope = f"layer/transpose/{name}"
        rows, columns = WEIGHTS[name][0] * DATA, WEIGHTS[name][1]
        size = w.constant(1.0, (rows, TOKENS), "bf16")
        other = w.constant(1.0, (MODEL, columns), "bf16") if columns != MODEL else None
        gradient = w.dot(size, again if other is None else w.dot(again, other, (1, 0)), (1, 0))
        shard = w.shard(w.all_reduce(gradient, "data"), *place)
        w.scope = f"optimizer/{name}"
        results += _update(w, weight, (moments[0], moments[1]), shard)
    return again, results


def text(layers: int) -> tuple[str, int]:
    """The module of ``layers`` layers as MLIR text, and its number of ops."""
    w = Writer()
    arguments: list[Value] = [Value("%x", (TOKENS, MODEL), "bf16")]
    tables = (
        Value("%scale", (MODEL,), "bf16"),
        Value("%cosine", (TOKENS, HEAD // 2), "f32"),
        Value("%sine", (TOKENS, HEAD // 2), "f32"),
    )
    arguments += tables
    x, results = arguments[0], []
    partition = w.convert(w.emit("partition_id", (), w.new((), "ui32")), "i32")
    index = w.each("divide", partition, w.constant(TENSOR, (), "i32"))
    zero = w.constant(0, (), "i32")
    for layer in range(layers):
        state = []
        for name, shape in WEIGHTS.items():
            item = tuple(Value(f"%{name}_{layer}_{part}", shape, "f32") for part in "wmv")
            arguments += item
            state.append((item[0], item[1], item[2]))
        x, new = _layer(w, x, state, tables, (index, zero))
        results += new
    results.append(x)
    data = [[t + TENSOR * d for d in range(DATA)] for t in range(TENSOR)]
    tensor = [[t + TENSOR * d for t in range(TENSOR)] for d in range(DATA)]
    inputs = ", ".join(f"{item.name}: {item.type}" for item in arguments)
    types = ", ".join(item.type for item in results)
    names = ", ".join(item.name for item in results)
    lines = [
        f"#data = dense<{data}> : tensor<{TENSOR}x{DATA}xi64>",
        f"#tensor = dense<{tensor}> : tensor<{DATA}x{TENSOR}xi64>",
        f"module @step attributes {{mhlo.num_partitions = {DATA * TENSOR} : i32, "
        "mhlo.num_replicas = 1 : i32} {",
        f"  func.func public @main({inputs}) -> ({types}) {{",
        *w.lines,
        f"    return {names} : {types}",
        "  }",
        "}",
    ]
    return "\n".join(lines), w.ops


def layers_for(ops: int) -> int:
    """The number of layers whose module has at least ``ops`` ops."""
    one, two = text(1)[1], text(2)[1]
    return max(1, -(-(ops - one) // (two - one)) + 1)


def bytecode(source: str) -> bytes:
    """MLIR bytecode of MLIR text."""
    import io

    from flint.stablehlo.read.bindings import parse

    stream = io.BytesIO()
    parse(source.encode()).operation.write_bytecode(stream)
    return stream.getvalue()


def hlo(source: str) -> bytes:
    """The ``HloModuleProto`` of MLIR text, by XLA's own conversion."""
    from jaxlib import _jax

    computation = _jax.mlir.mlir_module_to_xla_computation(
        bytecode(source), use_tuple_args=False, return_tuple=True
    )
    return bytes(computation.as_serialized_hlo_module_proto())


WRITERS: dict[str, Callable[[str], bytes]] = {
    "text": str.encode,
    "bytecode": bytecode,
    "hlo": hlo,
}


def write(path: Path, *, layers: int, form: str = "bytecode") -> int:
    """Write the module of ``layers`` layers to ``path`` in one of ``FORMS``; returns its ops."""
    source, ops = text(layers)
    path.write_bytes(WRITERS[form](source))
    return ops


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="write a large unrolled StableHLO or HLO module")
    parser.add_argument("path", type=Path)
    size = parser.add_mutually_exclusive_group(required=True)
    size.add_argument("--layers", type=int)
    size.add_argument("--ops", type=int, help="at least so many ops")
    parser.add_argument("--form", choices=FORMS, default="bytecode")
    given = parser.parse_args()
    layers = given.layers or layers_for(given.ops)
    ops = write(given.path, layers=layers, form=given.form)
    print(f"{given.path}: {layers} layers, {ops} ops, {given.path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
