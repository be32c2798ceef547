"""Work of library kernels behind ``custom_call``: GEMM, convolution, attention, and others.

The idea: a library call hides its arithmetic, but its operand types and ``backend_config`` are
enough for most.  A function here returns None if they are not: then only boundary bytes are known,
and the caller warns.  Configurations are read as JSON, or as the dictionary that a reader made from
it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

from flint.cost import op_work
from flint.errors import FlintError
from flint.graph.tensor_types import TensorType
from flint.graph.work import Unit, WorkItem
from flint.stablehlo.read.records import COST_ESTIMATE, Op
from flint.stablehlo.rules.causal_masks import causal_share
from flint.stablehlo.rules.contraction import convolution_item

Types = Sequence[TensorType]
#: FLOPs of a library call, or None where types and configuration are not enough.
ItemRule = Callable[[Op, Types, Types], tuple[WorkItem, ...] | None]

_MAX_CONFIG = 1 << 20
_STATED_UNITS = {unit.name.lower(): unit for unit in Unit if unit <= Unit.TRANSCENDENTAL}

#: The sizes in the configuration of Transformer Engine's attention, the mask and its window.
_ENGINE_SIZES = (
    "input_batch", "attn_heads", "q_max_seqlen", "kv_max_seqlen", "qk_head_dim", "v_head_dim",
    "mask_type", "window_size_left",
)  # fmt: skip
_CAUSAL_MASKS, _TO_THE_LAST = (2, 3, 4, 5), (4, 5)
#: A number in a configuration that is written as attributes.
_ATTRIBUTE = re.compile(r"(\w{1,40}) = (-?\d{1,18}) : i64")


def config_of(op: Op) -> Mapping[str, Any]:
    """``backend_config`` as a mapping; empty when there is none or it is not JSON."""
    return _mapping(op.attr("backend_config"))


def _mapping(config: Any) -> Mapping[str, Any]:
    if isinstance(config, bytes):
        config = config.decode("utf-8", "replace")
    if isinstance(config, str) and config.lstrip().startswith("{") and len(config) <= _MAX_CONFIG:
        try:
            config = json.loads(config)
        except (ValueError, RecursionError):
            return {}
    return config if isinstance(config, Mapping) else {}


def _section(config: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    section = config.get(name, config)
    return section if isinstance(section, Mapping) else {}


def _ints(value: Any) -> tuple[int, ...] | None:
    try:
        return tuple(int(item) for item in value)
    except (OverflowError, TypeError, ValueError):
        return None


def gemm_items(op: Op, ins: Types, outs: Types) -> tuple[WorkItem, ...] | None:
    """cuBLAS, cuBLASLt, oneDNN: first two operands times each other into the first result.

    Dimension numbers come from ``gemm_backend_config`` when it is there, else from the sizes with
    the result's leading dims as batch.
    """
    if len(ins) < 2 or not outs:
        return None
    lhs, rhs, out = ins[0], ins[1], outs[0]
    numbers = _section(config_of(op), "gemm_backend_config").get("dot_dimension_numbers")
    batch: int | None = None
    if isinstance(numbers, Mapping):
        dims = _ints(numbers.get("lhs_batch_dimensions", ()))
        if dims is not None and all(0 <= dim < len(lhs.shape) for dim in dims):
            batch = prod(lhs.shape[dim] for dim in dims)
    if batch is None:
        batch = prod(out.shape[:-2]) if len(lhs.shape) == len(rhs.shape) else 1
    gemm = op_work.gemm_dims_from_sizes(batch, lhs.elements, rhs.elements, out.elements)
    if gemm is None:
        return None
    return (WorkItem(Unit.MATMUL, lhs.dtype, op_work.gemm_flops(gemm), gemm),)


def block_scaled_items(op: Op, ins: Types, outs: Types) -> tuple[WorkItem, ...] | None:
    """A product of narrow floats with a scale per block, whose scales follow both operands."""
    items = gemm_items(op, ins, outs)
    return items and tuple(item._replace(dtype=op_work.block_scaled(item.dtype)) for item in items)


def convolution_items(op: Op, ins: Types, outs: Types) -> tuple[WorkItem, ...] | None:
    """cuDNN and oneDNN convolutions, whose window and dimension numbers the reader supplies.

    They are always those of the forward convolution (input, kernel) -> output; a backward call has
    the same three tensors in other positions and does the same multiply-adds.
    """
    if op.attr("input_spatial") is None or len(ins) < 2 or not outs:
        return None
    target = str(op.attr("target", ""))
    image, kernel, out = ins[0], ins[1], outs[0]
    if "BackwardInput" in target:
        image, out = out, image
    elif "BackwardFilter" in target:
        kernel, out = out, kernel
    try:
        item = convolution_item(op, image, kernel, out)
    except FlintError:
        return None
    return (item._replace(dtype=ins[0].dtype),)


def attention_items(op: Op, ins: Types, outs: Types) -> tuple[WorkItem, ...] | None:
    """cuDNN attention: two GEMMs forward (Q K^T, P V), five backward (Q K^T again, dV, dP, dQ, dK).

    The score tensor [batch, heads, queries, keys] is in ``cudnn_fmha_backend_config``; the head
    size is the query's last dim.  One exponential per score.  Scores that a causal mask or its
    sliding window hides are not computed; those that padding hides are counted, because they depend
    on data.
    """
    config = _section(config_of(op), "cudnn_fmha_backend_config")
    shape = _section(config, "intermediate_tensor_shape").get("dimensions")
    scores = _ints(shape) if shape is not None else None
    if scores is None or len(scores) != 4 or min(scores) <= 0 or not ins or not ins[0].shape:
        return None
    batch, heads, queries, keys = scores
    head = ins[0].shape[-1]
    gemms = 5 if "Backward" in str(op.attr("target", "")) else 2
    dims = (batch * heads * gemms, queries, keys, head)
    dtype = ins[0].dtype
    items = (
        WorkItem(Unit.MATMUL, dtype, op_work.gemm_flops(dims), dims),
        WorkItem(Unit.TRANSCENDENTAL, dtype, prod(scores)),
    )
    window = _ints((config.get("sliding_window_length", 0),))
    causal = str(config.get("mask_type", "")).endswith("CAUSAL")
    if not causal:
        return items
    return causal_share(queries, keys, max(0, *window) if window else 0).of(items)


def transformer_engine_items(op: Op, ins: Types, outs: Types) -> tuple[WorkItem, ...] | None:
    """Transformer Engine's attention: GEMMs and masks as of ``attention_items``.

    Its configuration has all sizes.  Of its masks, numbers 2 and 3 are causal from the first query
    on, 4 and 5 up to the last one (``NVTE_Mask_Type``); 1, 3 and 5 also hide padding.
    """
    config = op.attr("backend_config")
    if not isinstance(config, Mapping):
        config = dict(_ATTRIBUTE.findall(str(config)[:_MAX_CONFIG]))
    sizes = _ints([config.get(name, 0) for name in _ENGINE_SIZES])
    if sizes is None or min(sizes[:5]) <= 0 or not ins:
        return None
    batch, heads, queries, keys, head, value, mask, left = sizes
    times = batch * heads
    first, second = (3, 2) if "backward" in str(op.attr("target", "")) else (1, 1)
    items = tuple(
        WorkItem(Unit.MATMUL, ins[0].dtype, op_work.gemm_flops(dims), dims)
        for dims in ((first * times, queries, keys, head), (second * times, queries, keys, value))
    )
    items += (WorkItem(Unit.TRANSCENDENTAL, ins[0].dtype, times * queries * keys),)
    if mask not in _CAUSAL_MASKS or (mask in _TO_THE_LAST and queries != keys):
        return items
    return causal_share(queries, keys, left + 1 if left >= 0 else 0).of(items)


def stated_items(op: Op, ins: Types, outs: Types) -> tuple[WorkItem, ...] | None:
    """A kernel that states its own cost, as Pallas does in ``cost_estimate``.

    FLOPs count as MATMUL in the first operand's dtype unless it states ``"unit": "vector"`` and
    ``"dtype"``, or ``"items"``: lists of unit, dtype and FLOPs, which only Flint's own kernels
    state.
    """
    estimate = _estimate(op)
    if estimate is None:
        return None
    if "items" in estimate:
        return _listed_items(estimate["items"])
    counts = _ints((estimate.get("flops", 0), estimate.get("transcendentals", 0)))
    if counts is None or min(counts) < 0:
        return None
    dtype = str(estimate.get("dtype", (ins or outs)[0].dtype))
    unit = Unit.VECTOR if estimate.get("unit") == "vector" else Unit.MATMUL
    units = (unit, Unit.TRANSCENDENTAL)
    return tuple(WorkItem(u, dtype, n) for u, n in zip(units, counts, strict=True) if n)


def _listed_items(listed: Any) -> tuple[WorkItem, ...] | None:
    items = []
    for entry in listed if isinstance(listed, list) else (None,):
        if not isinstance(entry, list) or len(entry) != 3:
            return None
        unit, dtype, flops = _STATED_UNITS.get(str(entry[0])), entry[1], _ints(entry[2:])
        if unit is None or not isinstance(dtype, str) or flops is None or flops[0] < 0:
            return None
        items.append(WorkItem(unit, dtype, flops[0]))
    return tuple(items)


def stated_bytes(op: Op) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Bytes of each operand that a kernel reads and of each result that it writes, if it states
    them (``"operand_bytes"``, ``"result_bytes"``), which only Flint's own kernels do.
    """
    estimate = _estimate(op) if op.name == "custom_call" else None
    if estimate is None:
        return None
    read, written = (_ints(estimate.get(key, ())) for key in ("operand_bytes", "result_bytes"))
    if read is None or written is None or min((*read, *written), default=0) < 0:
        return None
    fit = len(read) == len(op.operands) and len(written) == len(op.results)
    return (read, written) if fit else None


def _estimate(op: Op) -> Mapping[str, Any] | None:
    """The cost that a kernel states, or that its frontend has attached to it."""
    attached = op.attr(COST_ESTIMATE)
    if attached is not None:
        return _mapping(attached)
    found = _section(config_of(op), "custom_call_config").get("cost_estimate")
    return found if isinstance(found, Mapping) else None


def sort_items(_op: Op, ins: Types, _outs: Types) -> tuple[WorkItem, ...] | None:
    """A sort of the first operand."""
    return vector_item(ins, op_work.sort_flops(ins[0].elements)) if ins else None


def top_k_items(_op: Op, ins: Types, outs: Types) -> tuple[WorkItem, ...] | None:
    """A selection; k is the last dim of the first result."""
    if not ins or not outs or not outs[0].shape:
        return None
    return vector_item(ins, op_work.top_k_flops(ins[0].elements, outs[0].shape[-1]))


def threefry_items(_op: Op, ins: Types, outs: Types) -> tuple[WorkItem, ...] | None:
    """Threefry-2x32 with 20 rounds (Salmon et al., SC 2011), per pair of words: 20 rounds of add,
    rotate (3) and xor, 2 xors for the third key word, 2 + 5 x 3 additions of keys and counter."""
    return vector_item(ins, outs[0].elements * (20 * 5 + 2 + 2 + 5 * 3)) if ins and outs else None


def unknown_items(_op: Op, _ins: Types, _outs: Types) -> tuple[WorkItem, ...] | None:
    """A kernel whose arithmetic cannot be seen from outside."""
    return None


def vector_item(ins: Types, flops: int) -> tuple[WorkItem, ...]:
    """FLOPs of the vector unit in the first operand's element type; empty if they are 0."""
    return (WorkItem(Unit.VECTOR, ins[0].dtype, flops),) if flops else ()
