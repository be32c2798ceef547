"""PyTorch's own kernels of rows: softmaxes, norms, their gradients and that of an embedding.

The idea: how often such a kernel reads its rows follows from the loops in its source, and what it
takes beside that was measured alone on an H100 (``benchmarks/accuracy/single_gpu/kernels.csv``).

- A softmax of up to 1,024 elements is held in registers by one warp, a longer one in 48 KiB of
  shared memory: both take their time per element.  What fits in neither is read twice, as the rows
  of a layer norm are, once for statistics and once for the result (``SoftMax.cu``,
  ``layer_norm_kernel.cu``).
- The gradient of a long log-softmax reads what it is given twice, that of a softmax is a product
  and then a kernel of rows.
- The gradient of a norm's input reads both operands twice; that of its weights is a second kernel,
  which reads them once more and sums along columns.
- The gradient of an embedding's table is filled with zeros; its indices are sorted, and each row
  that occurs is summed up (``EmbeddingBackwardKernel.cu``).  Tokens count as drawn evenly.

These count only in a program of one device (``KernelModel.alone``).
"""

from __future__ import annotations

from math import exp
from typing import Final

from flint.cost.hardware import Accelerator
from flint.graph.nodes import Node

#: What such kernels do, as graphs name it (``Tables.heroes``).
REGISTERS: Final = "softmax in registers"
SHARED: Final = "softmax in shared memory"
AGAIN: Final = "rows read twice"
PRODUCT_FIRST: Final = "gradient of a softmax"
ROW_GRADIENT: Final = "gradients of a norm"
TABLE_GRADIENT: Final = "gradient of a table"
ROW_KERNELS: Final = (AGAIN, PRODUCT_FIRST, REGISTERS, ROW_GRADIENT, SHARED, TABLE_GRADIENT)
#: Elements per second of a multiprocessor in softmaxes: 2.1 ps for one in registers (bf16, 768 and
#: 1,024 wide) and 3.2 to 3.5 ps for one in shared memory (bf16 and f32, 4,096 wide) on 132 of them.
_IN_REGISTERS, _IN_SHARED = 3.6e9, 2.25e9
#: The same of a table's gradient: 25 to 29 ps for an element of a row that occurs.
_OF_TABLE: Final = 2.7e8
#: Indices up to which another kernel makes a table's gradient.
_FEW: Final = 3072


def in_registers(node: Node, accelerator: Accelerator) -> float:
    """Seconds of a softmax of short rows, as the other functions here without launch."""
    return _elements(node) / (_IN_REGISTERS * accelerator.kernel.units)


def in_shared(node: Node, accelerator: Accelerator) -> float:
    """Seconds of a softmax whose rows fit in shared memory."""
    return _elements(node) / (_IN_SHARED * accelerator.kernel.units)


def again(node: Node, accelerator: Accelerator) -> float:
    """Seconds of a kernel that reads its first operand twice."""
    return (_moved(node) + node.operand_types[0].bytes) / _bandwidth(accelerator)


def product_first(node: Node, accelerator: Accelerator) -> float:
    """Seconds of two kernels: a product of both operands, and rows, which are read twice if they
    are long.
    """
    rows = node.operand_types[0]
    moved = 2 * _moved(node) + rows.bytes * (rows.shape[-1] > LONGEST)
    model = accelerator.kernel
    return moved / _bandwidth(accelerator) + model.latency + accelerator.launch_overhead


def row_gradient(node: Node, accelerator: Accelerator, columns: float) -> float:
    """Seconds of a norm's gradients: of its input, and of its weights.

    Args:
        node: the op.
        accelerator: the device.
        columns: seconds of the arithmetic of a sum along columns.
    """
    most = _elements(node)
    again = sum(item.bytes for item in node.operand_types if item.elements == most)
    rate, model = _bandwidth(accelerator), accelerator.kernel
    weights = max(again / rate, columns) + model.latency + accelerator.launch_overhead
    return (_moved(node) + again) / rate + weights


def table_gradient(node: Node, accelerator: Accelerator) -> float:
    """Seconds of the gradient of an embedding's table."""
    indices = node.operand_types[1]
    table = node.result_types[0]
    if indices.elements <= _FEW or len(table.shape) != 2:
        return 0.0
    rows, width = table.shape
    occur = rows * (1 - exp(-indices.elements / rows)) * width
    units = accelerator.kernel.units
    return table.bytes / _bandwidth(accelerator) + occur / (_OF_TABLE * units)


#: Elements of the longest rows in registers.
LONGEST: Final = 1024


def _elements(node: Node) -> int:
    return max((item.elements for item in node.operand_types), default=0)


def _moved(node: Node) -> int:
    return node.work.read + node.work.written


def _bandwidth(accelerator: Accelerator) -> float:
    return accelerator.memory_bandwidth * accelerator.kernel.memory_efficiency
