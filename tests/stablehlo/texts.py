"""A ``@main`` around a body, for tests of what is in it."""

from __future__ import annotations

from flint.graph.graph import WorkloadGraph

F = "tensor<8xf32>"


def main(body: str, results: str = F, arguments: str = f"%x: {F}, %y: {F}", extra: str = "") -> str:
    return f"""module attributes {{mhlo.num_partitions = 4 : i32}} {{
      {extra}
      func.func @main({arguments}) -> ({results}) {{
        {body}
      }}
    }}"""


def ops(graph: WorkloadGraph) -> list[str]:
    return [node.op for node in graph]
