"""Short ways to build the small graphs of these tests."""

from __future__ import annotations

from collections.abc import Sequence

from flint.graph.building import GraphBuilder, TableBuilder
from flint.graph.communication import Communication
from flint.graph.graph import EdgeKind, WorkloadGraph
from flint.graph.tensor_types import TensorType, tensor_type
from flint.graph.work import NO_WORK, Role, Unit, Work, WorkItem
from flint.mesh.groups import everybody

#: An activation, a weight and its shard on one of 8 ranks: 8192, 2048 and 256 bytes.
ACTIVATION = tensor_type((64, 32), "f32")
WEIGHT = tensor_type((32, 16), "f32")
SHARD = tensor_type((4, 16), "f32")
SCALAR = tensor_type((), "f32")
INDEX = tensor_type((), "i32")

Order = Sequence[tuple[int, EdgeKind]]


class Graph:
    """Adds ops by what they are; every method returns the (first) result value."""

    def __init__(self, tables: TableBuilder | None = None) -> None:
        self.builder = GraphBuilder(tables or TableBuilder())

    def input(self, item: TensorType = ACTIVATION) -> int:
        return self.builder.input(self.builder.tables.type(item))

    @property
    def last(self) -> int:
        """Index of the node added last."""
        return len(self.builder) - 1

    def op(
        self,
        name: str,
        role: Role,
        operands: Sequence[int],
        result: TensorType = ACTIVATION,
        work: Work = NO_WORK,
        order: Order = (),
    ) -> int:
        return self.builder.compute(name, role, operands, (result,), work, order)[0]

    def elementwise(
        self, *operands: int, name: str = "add", of: TensorType = ACTIVATION, order: Order = ()
    ) -> int:
        item = WorkItem(Unit.VECTOR, of.dtype, of.elements)
        work = Work((item,), len(operands) * of.bytes, of.bytes)
        return self.op(name, Role.ELEMENTWISE, operands, of, work, order)

    def move(
        self, operand: int, source: TensorType, target: TensorType, name: str = "transpose"
    ) -> int:
        return self.op(
            name, Role.MOVEMENT, (operand,), target, Work((), source.bytes, target.bytes)
        )

    def constant(self, of: TensorType = SCALAR, splat: bool = False) -> int:
        work = NO_WORK if splat else Work((), 0, 0, of.bytes)
        return self.op("constant", Role.GENERATE, (), of, work)

    def reduce(self, operand: int, source: TensorType = ACTIVATION, of: TensorType = SCALAR) -> int:
        item = WorkItem(Unit.VECTOR, source.dtype, source.elements)
        work = Work((item,), source.bytes, of.bytes)
        return self.op("reduce", Role.REDUCTION, (operand,), of, work)

    def dot(
        self,
        left: int,
        right: int,
        result: TensorType = ACTIVATION,
        operands: tuple[TensorType, TensorType] = (ACTIVATION, WEIGHT),
    ) -> int:
        rows, columns = result.shape
        item = WorkItem(Unit.MATMUL, "f32", 2 * result.elements * 16, (1, rows, columns, 16))
        work = Work((item,), operands[0].bytes + operands[1].bytes, result.bytes)
        return self.op("dot_general", Role.CONTRACTION, (left, right), result, work)

    def update(self, buffer: int, update: int, index: int, order: Order = ()) -> int:
        work = Work(
            (), SHARD.bytes + INDEX.bytes, SHARD.bytes, aliased=ACTIVATION.bytes - SHARD.bytes
        )
        operands = (buffer, update, index)
        return self.op("dynamic_update_slice", Role.UPDATE, operands, ACTIVATION, work, order)

    def barrier(self, *operands: int, of: Sequence[TensorType] | TensorType = ACTIVATION) -> range:
        """An optimization barrier; its results."""
        types = (of,) * len(operands) if isinstance(of, TensorType) else of
        name = "optimization_barrier"
        return self.builder.compute(name, Role.ALIAS, operands, types, NO_WORK)

    def communicate(
        self,
        kind: str,
        operand: int,
        source: TensorType,
        target: TensorType,
        order: Order = (),
    ) -> int:
        item = Communication(
            kind, "add", everybody(8), None, (source.bytes,), (target.bytes,), (source.dtype,)
        )
        return self.builder.communication(item, (operand,), (target,), order=order)[0]

    def all_gather(self, operand: int) -> int:
        return self.communicate("all_gather", operand, SHARD, WEIGHT)

    def reduce_scatter(self, operand: int) -> int:
        return self.communicate("reduce_scatter", operand, WEIGHT, SHARD)

    def all_reduce(self, operand: int, of: TensorType = ACTIVATION, order: Order = ()) -> int:
        return self.communicate("all_reduce", operand, of, of, order)

    def finish(self, *outputs: int) -> WorkloadGraph:
        return self.builder.finish(outputs)


def names(graph: WorkloadGraph) -> list[str]:
    """Op names in issue order."""
    return [node.op for node in graph]


def training_step(layers: int) -> WorkloadGraph:
    """Fully sharded data parallel over ``layers`` products, in the order of partitioned text.

    Depth first from the outputs: gather and use of every layer, the whole backward data path, then
    the weight gradients and their reductions in reverse. Ops carry their layer in their names.
    """
    g = Graph()
    x = g.input()
    shards = [g.input(SHARD) for _ in range(layers)]
    kept, gathered = [], []
    for layer, shard in enumerate(shards):
        gathered.append(g.all_gather(shard))
        kept.append(x)
        x = g.elementwise(g.dot(x, gathered[layer]), name=f"forward{layer}")
    arriving = []
    for layer in reversed(range(layers)):
        x = g.elementwise(x, kept[layer], name=f"backward{layer}")
        arriving.append(x)
        if layer:
            x = g.dot(x, gathered[layer])
    gradients = []
    for layer, dy in zip(range(layers), reversed(arriving), strict=True):
        gradients.append(g.dot(kept[layer], dy, WEIGHT, (ACTIVATION, ACTIVATION)))
    return g.finish(*[g.reduce_scatter(gradient) for gradient in gradients])
