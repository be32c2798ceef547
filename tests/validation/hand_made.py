"""A recorded step of two products and two collectives, and Kineto traces of it as NCCL has them.

Both are written by hand: on a mesh (data, model), ``x @ w``, an all-gather of the result along
model, a product with that, and the all-reduce of its gradient along data.
"""

from __future__ import annotations

import json

from flint.graph.building import GraphBuilder, TableBuilder
from flint.graph.communication import Communication
from flint.graph.graph import with_tables
from flint.graph.tensor_types import tensor_type
from flint.graph.work import Role, Unit, Work, WorkItem
from flint.mesh.groups import along_axes
from flint.mesh.mesh import Mesh
from flint.mesh.ranks import all_ranks
from flint.workload.programs import Order, Program, ProgramInput, with_communicators
from flint.workload.workload import Workload

X, W, H, G = ((16, 32), (32, 8), (16, 8), (32, 8))
MESH = Mesh((2, 2), ("data", "model"))
STEPS = ("ProfilerStep#1", "ProfilerStep#2", "ProfilerStep#3")


def workload(mesh: Mesh = MESH) -> Workload:
    """The step as it would be captured."""
    tables = TableBuilder()
    builder = GraphBuilder(tables)
    x, w, h, g = (tensor_type(shape, "f32") for shape in (X, W, H, G))
    first, weight = builder.input(tables.type(x)), builder.input(tables.type(w))

    def product(a, b, result, dims):
        _, m, n, k = dims
        work = Work((WorkItem(Unit.MATMUL, "f32", 2 * m * n * k, dims),), 4 * (m * k + k * n), 1)
        (made,) = builder.compute("aten.mm.default", Role.CONTRACTION, (a, b), (result,), work)
        return made

    def collective(kind, axis, value, result, size):
        reduction = "add" if kind == "all_reduce" else None
        item = Communication(
            kind, reduction, along_axes(mesh, (axis,)), None, (size,), (result.bytes,), ("f32",)
        )
        (made,) = builder.communication(item, (value,), (result,))
        return made

    hidden = product(first, weight, h, (1, 16, 8, 32))
    gathered = collective("all_gather", "model", hidden, g, 512)
    gradient = product(gathered, gathered, g, (1, 32, 8, 16))
    last = collective("all_reduce", "data", gradient, g, 1024)
    graph = with_tables(builder.finish((last,)), tables.finish())
    inputs = tuple(ProgramInput(graph.type_of(i)) for i in range(graph.inputs))
    program = Program("main", graph, all_ranks(mesh.size), inputs)
    return Workload(mesh, with_communicators((program,)), order=Order.RECORDED)


def groups(rank: int) -> dict[str, list[int]]:
    """A rank's groups on ``MESH``."""
    return {
        "model": [rank // 2 * 2, rank // 2 * 2 + 1],
        "data": [rank % 2, rank % 2 + 2],
    }


class Events:
    """Events of one rank; times are microseconds on its own clock."""

    def __init__(self, rank: int, ahead: float = 0.0) -> None:
        self.rank = rank
        self.ahead = ahead
        self.events: list[dict] = []
        self.number = 0

    def op(self, name, start, kernel, *, took, nccl=False, args=None):
        """An op of 4 us on the host, and its kernel."""
        self.number += 1
        common = {"External id": self.number}
        self.event("cpu_op", name, start, 4, 1, common | (args or {}))
        runtime = {"correlation": self.number} | common
        self.event("cuda_runtime", "cudaLaunchKernel", start + 1, 1, 1, runtime)
        kernel_args = {"stream": 20 if nccl else 7, "correlation": self.number} | common
        name = "ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)" if nccl else "gemm"
        self.event("kernel", name, kernel, took, 20 if nccl else 7, kernel_args)

    def event(self, category, name, start, took, thread, args):
        """One event."""
        self.events.append(
            {
                "ph": "X", "cat": category, "name": name, "pid": 1, "tid": thread,
                "ts": start + self.ahead, "dur": took, "args": args,
            }
        )  # fmt: skip

    def product(self, start, a, b, took=10):
        """A product of two shapes."""
        dims = {"Input Dims": [list(a), list(b)], "Input type": ["float", "float"]}
        self.op("aten::mm", start, start + 5, took=took, args=dims)

    def collective(self, start, name, elements, ranks, kernel, took):
        """A record, and its kernel from ``kernel`` on."""
        record = {
            "Collective name": name, "dtype": "Float", "In msg nelems": elements,
            "Group size": len(ranks), "Process Group Ranks": str(ranks),
        }  # fmt: skip
        self.op("record_param_comms", start, kernel, took=took, nccl=True, args=record)

    def step(self, number, begin, *, late=0, extra=0, slow=1):
        """One step; ``late``: this rank comes so much later to its first collective."""
        self.event("user_annotation", f"ProfilerStep#{number}", begin, 900, 1, {})
        of = groups(self.rank)
        self.product(begin + 10, X, W, 10 * slow)
        for n in range(extra):
            self.product(begin + 20 + 5 * n, X, W)
        # All members leave together, at begin + 200 and begin + 400.
        at = begin + 100 + late
        self.collective(at - 5, "_allgather_base", 128, of["model"], at, begin + 200 - at)
        self.product(begin + 250, (32, 16), (16, 8), 10 * slow)
        self.collective(begin + 300, "allreduce", 256, of["data"], begin + 350, 50)

    def save(self, folder, world=4, name=None, **rest):
        """Write rank<r>.json; returns its path."""
        path = folder / (name or f"rank{self.rank}.json")
        info = {"rank": self.rank, "world_size": world} if world else {}
        document = {"traceEvents": self.events, "distributedInfo": info} | rest
        path.write_text(json.dumps(document))
        return path


def traces(folder, ranks=range(4), *, ahead=(0, 0, 0, 0), steps=(1, 2, 3), **options):
    """A trace per rank, every second rank 40 us late for the all-gather."""
    paths = []
    for rank in ranks:
        events = Events(rank, ahead[rank])
        for place, number in enumerate(steps):
            events.step(number, 10**7 + 1000 * place, late=40 * (rank % 2), **options)
        paths.append(events.save(folder))
    return paths
