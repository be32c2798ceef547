"""Attribute decoders: MLIR attributes -> the plain Python that rules read.

The idea: one row per op that has attributes worth reading; an op without a row costs nothing.  The
names and forms on the right-hand side are those of the table in ``records.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from flint.stablehlo.read import collectives
from flint.stablehlo.read.bindings import attribute_text, chlo, ir, stablehlo
from flint.stablehlo.read.elements import as_int64, integer_array
from flint.stablehlo.read.issue_attributes import DOES
from flint.stablehlo.read.records import (
    COST_ESTIMATE,
    FRONTEND_ATTRIBUTES,
    REMOTE_COPIES,
    ReplicaGroups,
)

#: Constants larger than this keep no value: only shapes, counters and rank tables matter here.
MAX_CONSTANT_ELEMENTS = 2**20

#: (operation, reader) -> attributes.
Decoder = Callable[[Any, Any], dict[str, Any]]


def _ints(attribute: Any) -> tuple[int, ...]:
    if isinstance(attribute, ir.DenseI64ArrayAttr):
        return tuple(attribute)
    if isinstance(attribute, ir.DenseBoolArrayAttr):
        return tuple(int(item) for item in attribute)
    return tuple(int(item) for item in integer_array(attribute).reshape(-1))


def _int(attribute: Any) -> int:
    return int(ir.IntegerAttr(attribute).value)


def _fields(**fields: tuple[str, Callable[[Any], Any]]) -> Decoder:
    """A decoder of plain attributes: our name -> (MLIR name, conversion); absent ones stay out."""
    rows = tuple((name, key, convert) for name, (key, convert) in fields.items())

    def decode(op: Any, _reader: Any) -> dict[str, Any]:
        attributes = op.attributes
        return {name: convert(attributes[key]) for name, key, convert in rows if key in attributes}

    return decode


def _numbers(kind: Any, key: str, **fields: str) -> Decoder:
    """A decoder of dimension numbers: our name -> MLIR's; lists become tuples."""

    def decode(op: Any, _reader: Any) -> dict[str, Any]:
        numbers = kind(op.attributes[key])
        decoded = {}
        for name, field in fields.items():
            value = getattr(numbers, field)
            decoded[name] = value if isinstance(value, int) else tuple(value)
        return decoded

    return decode


def _int_pairs(attribute: Any) -> tuple[tuple[int, int], ...]:
    return tuple((int(low), int(high)) for low, high in integer_array(attribute))


def _constant(op: Any, _reader: Any) -> dict[str, Any] | None:
    try:
        value = op.attributes["value"]
    except TypeError:  # The bindings have no form for arrays of complex numbers.
        return None
    if not isinstance(value, ir.DenseIntElementsAttr):
        if isinstance(value, ir.DenseFPElementsAttr) and value.is_splat:
            number: Any = value.get_splat_value()
            return {"value": np.array(number.value)} if isinstance(number, ir.FloatAttr) else None
        return None
    if value.is_splat:
        splat: Any = value.get_splat_value()
        return {"value": np.array(as_int64(int(splat.value)), dtype=np.int64)}
    if len(value) > MAX_CONSTANT_ELEMENTS:
        return None
    try:
        return {"value": integer_array(value)}
    except TypeError:  # The bindings cannot read elements of less than a byte.
        return None


def _convolution(op: Any, reader: Any) -> dict[str, Any]:
    return _CONVOLUTION_NUMBERS(op, reader) | _CONVOLUTION_WINDOW(op, reader)


def _gather(op: Any, reader: Any) -> dict[str, Any]:
    return _GATHER_NUMBERS(op, reader) | _GATHER_WINDOW(op, reader)


def _dot(op: Any, reader: Any) -> dict[str, Any]:
    decoded = _DOT(op, reader)
    if "precision_config" in op.attributes:
        wanted = {str(item) for item in op.attributes["precision_config"]}
        if wanted == {"#stablehlo<precision HIGHEST>"}:
            decoded["exact"] = True
    return decoded


def _compare(op: Any, _reader: Any) -> dict[str, Any]:
    direction = stablehlo.ComparisonDirectionAttr(op.attributes["comparison_direction"])
    return {"direction": str(direction.value)}


def _callee(op: Any, reader: Any) -> dict[str, Any]:
    callee = str(ir.FlatSymbolRefAttr(op.attributes["callee"]).value)
    reader.pending.append(callee)
    return {"callee": callee}


def _composite(op: Any, reader: Any) -> dict[str, Any]:
    attributes = op.attributes
    decomposition = str(ir.FlatSymbolRefAttr(attributes["decomposition"]).value)
    reader.pending.append(decomposition)
    found = {"name": attribute_text(attributes["name"]), "decomposition": decomposition}
    if DOES in attributes:
        found["does"] = attribute_text(attributes[DOES])
    return found


def entries(attribute: Any) -> Any:
    """The named attributes of a dictionary; the bindings' stubs do not declare it iterable."""
    return ir.DictAttr(attribute)


def plain(attribute: Any) -> Any:
    """An attribute as plain Python: number, bool, str, list, dict, int64 array; else its text."""
    if isinstance(attribute, ir.BoolAttr):
        return bool(attribute.value)
    if isinstance(attribute, ir.IntegerAttr | ir.FloatAttr):
        return attribute.value
    if isinstance(attribute, ir.StringAttr):  # a library's own bytes, maybe
        return bytes(attribute.value_bytes).decode("utf-8", "replace")
    if isinstance(attribute, ir.DictAttr):
        return {item.name: plain(item.attr) for item in entries(attribute)}
    if isinstance(attribute, ir.DenseI64ArrayAttr):
        return list(attribute)
    if isinstance(attribute, ir.ArrayAttr):
        return [plain(item) for item in attribute]
    if isinstance(attribute, ir.DenseIntElementsAttr):
        return integer_array(attribute)
    return str(attribute)


def _listed(op: Any, name: str) -> Any:
    """The items of an array attribute; empty if it is missing."""
    return ir.ArrayAttr(op.attributes[name]) if name in op.attributes else ()


def _custom_call(op: Any, reader: Any) -> dict[str, Any]:
    attributes = op.attributes
    decoded: dict[str, Any] = {"target": attribute_text(attributes["call_target_name"])}
    if "backend_config" in attributes:
        decoded["backend_config"] = plain(attributes["backend_config"])
    if "mhlo.sharding" in attributes:
        decoded["sharding"] = attribute_text(attributes["mhlo.sharding"])
    if FRONTEND_ATTRIBUTES in attributes:
        stated = plain(attributes[FRONTEND_ATTRIBUTES])
        decoded |= {name: stated[name] for name in (COST_ESTIMATE, REMOTE_COPIES) if name in stated}
    called = [str(ir.FlatSymbolRefAttr(item).value) for item in _listed(op, "called_computations")]
    if called:
        reader.pending += called
        decoded["called"] = tuple(called)
    config = decoded.get("backend_config")
    if isinstance(config, dict) and "replica_groups" in config:
        groups = config["replica_groups"]
        if isinstance(groups, np.ndarray):
            decoded["groups"] = ReplicaGroups(table=groups)
        decoded["channel_id"] = config.get("channel_id", 0)
        decoded["use_global_device_ids"] = True
        if isinstance(config.get("reduction"), str):
            decoded["reduction"] = config["reduction"]
    return decoded


_CONVOLUTION_NUMBERS = _numbers(
    stablehlo.ConvDimensionNumbers,
    "dimension_numbers",
    input_batch="input_batch_dimension",
    input_feature="input_feature_dimension",
    input_spatial="input_spatial_dimensions",
    kernel_input_feature="kernel_input_feature_dimension",
    kernel_output_feature="kernel_output_feature_dimension",
    kernel_spatial="kernel_spatial_dimensions",
    output_batch="output_batch_dimension",
    output_feature="output_feature_dimension",
    output_spatial="output_spatial_dimensions",
)
_CONVOLUTION_WINDOW = _fields(
    feature_group_count=("feature_group_count", _int),
    batch_group_count=("batch_group_count", _int),
    strides=("window_strides", _ints),
    lhs_dilation=("lhs_dilation", _ints),
    rhs_dilation=("rhs_dilation", _ints),
    padding=("padding", _int_pairs),
)
_GATHER_NUMBERS = _numbers(
    stablehlo.GatherDimensionNumbers,
    "dimension_numbers",
    offset_dims="offset_dims",
    collapsed_slice_dims="collapsed_slice_dims",
    operand_batching_dims="operand_batching_dims",
    start_indices_batching_dims="start_indices_batching_dims",
    start_index_map="start_index_map",
    index_vector_dim="index_vector_dim",
)
_GATHER_WINDOW = _fields(slice_sizes=("slice_sizes", _ints))
_DOT_NUMBERS = {
    "lhs_batching": "lhs_batching_dimensions",
    "rhs_batching": "rhs_batching_dimensions",
    "lhs_contracting": "lhs_contracting_dimensions",
    "rhs_contracting": "rhs_contracting_dimensions",
}
_DOT = _numbers(stablehlo.DotDimensionNumbers, "dot_dimension_numbers", **_DOT_NUMBERS)

#: Op name -> how its attributes are read.
DECODERS: dict[str, Decoder] = {
    **dict.fromkeys(collectives.WITH_GROUPS, collectives.collective),
    **dict.fromkeys(collectives.WITH_PAIRS, collectives.point_to_point),
    "broadcast_in_dim": _fields(dimensions=("broadcast_dimensions", _ints)),
    "call": _callee,
    "chlo.ragged_dot": _numbers(
        chlo.RaggedDotDimensionNumbers,
        "ragged_dot_dimension_numbers",
        **_DOT_NUMBERS,
        rhs_group="rhs_group_dimensions",
    ),
    "compare": _compare,
    "composite": _composite,
    "concatenate": _fields(dimension=("dimension", _int)),
    "constant": _constant,  # type: ignore[dict-item]  # None means "no attributes"
    "convolution": _convolution,
    "custom_call": _custom_call,
    "dot_general": _dot,
    "dynamic_conv": _convolution,
    "dynamic_slice": _fields(sizes=("slice_sizes", _ints)),
    "einsum": _fields(config=("einsum_config", attribute_text)),
    "fft": _fields(fft_length=("fft_length", _ints)),
    "gather": _gather,
    "get_tuple_element": _fields(index=("index", _int)),
    "iota": _fields(dimension=("iota_dimension", _int)),
    "pad": _fields(
        low=("edge_padding_low", _ints),
        high=("edge_padding_high", _ints),
        between=("interior_padding", _ints),
    ),
    "reduce": _fields(dimensions=("dimensions", _ints)),
    "reduce_window": _fields(
        window_dimensions=("window_dimensions", _ints),
        strides=("window_strides", _ints),
        base_dilations=("base_dilations", _ints),
        window_dilations=("window_dilations", _ints),
        padding=("padding", _int_pairs),
    ),
    "reverse": _fields(dimensions=("dimensions", _ints)),
    "scatter": _numbers(
        stablehlo.ScatterDimensionNumbers,
        "scatter_dimension_numbers",
        update_window_dims="update_window_dims",
        inserted_window_dims="inserted_window_dims",
        input_batching_dims="input_batching_dims",
        scatter_indices_batching_dims="scatter_indices_batching_dims",
        scatter_dims_to_operand_dims="scattered_dims_to_operand_dims",
        index_vector_dim="index_vector_dim",
    ),
    "select_and_scatter": _fields(
        window_dimensions=("window_dimensions", _ints),
        strides=("window_strides", _ints),
        padding=("padding", _int_pairs),
    ),
    "sort": _fields(dimension=("dimension", _int)),
    "slice": _fields(
        start=("start_indices", _ints), limit=("limit_indices", _ints), strides=("strides", _ints)
    ),
    "transpose": _fields(dimensions=("permutation", _ints)),
}
