"""Attribute decoders: fields of an HLO instruction -> the plain Python that rules read.

The idea: one decoder per kind of instruction; the names and forms on the right-hand side are those
of the table in ``stablehlo/records.py``.  Submessages of XLA's schema arrive serialised, so equal
attributes are decoded once per module and shared (records treat them as read-only).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from flint.errors import FlintError
from flint.graph.scalars import DIRECTIONS
from flint.hlo import hlo_pb2 as pb
from flint.hlo.context import Context, Decoder
from flint.hlo.literals import constant_value
from flint.hlo.locations import resolve_payload
from flint.hlo.mlir_text import flat_dictionary
from flint.stablehlo.read.records import BRANCH, COST_ESTIMATE, REMOTE_COPIES


def _once(field: str, decode: Callable[[bytes], dict[str, Any] | None]) -> Decoder:
    """A decoder of one serialised submessage, run once per distinct content."""

    def decoder(instruction: Any, context: Context) -> dict[str, Any] | None:
        data = getattr(instruction, field)
        key = (field, data)
        known = context.attributes
        if key in known:
            return known[key]
        decoded = known[key] = decode(data)
        return decoded

    return decoder


def _dot(data: bytes) -> dict[str, Any]:
    numbers = pb.DotDimensionNumbers.FromString(data)
    return {
        "lhs_batching": tuple(numbers.lhs_batch_dimensions),
        "rhs_batching": tuple(numbers.rhs_batch_dimensions),
        "lhs_contracting": tuple(numbers.lhs_contracting_dimensions),
        "rhs_contracting": tuple(numbers.rhs_contracting_dimensions),
    }


def _ragged_dot(data: bytes) -> dict[str, Any]:
    numbers = pb.RaggedDotDimensionNumbers.FromString(data)
    return _dot(numbers.dot_dimension_numbers.SerializeToString()) | {
        "rhs_group": tuple(numbers.rhs_group_dimensions),
    }


def _window(data: bytes) -> dict[str, Any]:
    dims = pb.Window.FromString(data).dimensions
    return {
        "window_dimensions": tuple([dim.size for dim in dims]),
        "strides": tuple([dim.stride for dim in dims]),
        "base_dilations": tuple([dim.base_dilation for dim in dims]),
        "window_dilations": tuple([dim.window_dilation for dim in dims]),
        "padding": tuple([(dim.padding_low, dim.padding_high) for dim in dims]),
    }


def _gather(data: bytes) -> dict[str, Any]:
    numbers = pb.GatherDimensionNumbers.FromString(data)
    return {
        "offset_dims": tuple(numbers.offset_dims),
        "collapsed_slice_dims": tuple(numbers.collapsed_slice_dims),
        "operand_batching_dims": tuple(numbers.operand_batching_dims),
        "start_indices_batching_dims": tuple(numbers.start_indices_batching_dims),
        "start_index_map": tuple(numbers.start_index_map),
        "index_vector_dim": numbers.index_vector_dim,
    }


def _scatter(data: bytes) -> dict[str, Any]:
    numbers = pb.ScatterDimensionNumbers.FromString(data)
    return {
        "update_window_dims": tuple(numbers.update_window_dims),
        "inserted_window_dims": tuple(numbers.inserted_window_dims),
        "input_batching_dims": tuple(numbers.input_batching_dims),
        "scatter_indices_batching_dims": tuple(numbers.scatter_indices_batching_dims),
        "scatter_dims_to_operand_dims": tuple(numbers.scatter_dims_to_operand_dims),
        "index_vector_dim": numbers.index_vector_dim,
    }


def _pad(data: bytes) -> dict[str, Any]:
    dims = pb.PaddingConfig.FromString(data).dimensions
    return {
        "low": tuple([dim.edge_padding_low for dim in dims]),
        "high": tuple([dim.edge_padding_high for dim in dims]),
        "between": tuple([dim.interior_padding for dim in dims]),
    }


def _constant(data: bytes) -> dict[str, Any] | None:
    value = constant_value(data)
    return None if value is None else {"value": value}


def convolution(instruction: Any, _context: Context) -> dict[str, Any]:
    """Dimension numbers and window of a convolution."""
    n = pb.ConvolutionDimensionNumbers.FromString(instruction.convolution_dimension_numbers)
    window = _window(instruction.window)
    return {
        "input_batch": n.input_batch_dimension,
        "input_feature": n.input_feature_dimension,
        "input_spatial": tuple(n.input_spatial_dimensions),
        "kernel_input_feature": n.kernel_input_feature_dimension,
        "kernel_output_feature": n.kernel_output_feature_dimension,
        "kernel_spatial": tuple(n.kernel_spatial_dimensions),
        "output_batch": n.output_batch_dimension,
        "output_feature": n.output_feature_dimension,
        "output_spatial": tuple(n.output_spatial_dimensions),
        "feature_group_count": max(instruction.feature_group_count, 1),
        "batch_group_count": max(instruction.batch_group_count, 1),
        "strides": window["strides"],
        "lhs_dilation": window["base_dilations"],
        "rhs_dilation": window["window_dilations"],
        "padding": window["padding"],
    }


def _shared(context: Context, **attributes: Any) -> dict[str, Any]:
    """The one dictionary of a module with these attributes."""
    return context.attributes.setdefault(tuple(attributes.items()), attributes) or attributes


def dimensions(instruction: Any, context: Context) -> dict[str, Any]:
    """All ``dimensions``."""
    return _shared(context, dimensions=tuple(instruction.dimensions))


def dimension(instruction: Any, context: Context) -> dict[str, Any]:
    """The only one of ``dimensions``."""
    (only,) = instruction.dimensions
    return _shared(context, dimension=only)


def slice_limits(instruction: Any, context: Context) -> dict[str, Any]:
    """Start, limit and stride per dim."""
    dims = instruction.slice_dimensions
    return _shared(
        context,
        start=tuple([dim.start for dim in dims]),
        limit=tuple([dim.limit for dim in dims]),
        strides=tuple([dim.stride for dim in dims]),
    )


def dynamic_slice(instruction: Any, context: Context) -> dict[str, Any]:
    """Slice size per dim."""
    return _shared(context, sizes=tuple(instruction.dynamic_slice_sizes))


def gather(instruction: Any, context: Context) -> dict[str, Any]:
    """The roles of the dims of operands and result, and the size of a window."""
    numbers = _GATHER(instruction, context) or {}
    return numbers | {"slice_sizes": tuple(instruction.gather_slice_sizes)}


def compare(instruction: Any, context: Context) -> dict[str, Any]:
    """Direction of a comparison."""
    direction = instruction.comparison_direction
    if direction not in DIRECTIONS:
        raise FlintError(f"a comparison has no direction {direction[:20]!r}")
    return _shared(context, direction=direction)


def select_and_scatter(instruction: Any, context: Context) -> dict[str, Any]:
    """Windows of a select-and-scatter."""
    window = WINDOW(instruction, context) or {}
    return {key: window[key] for key in ("window_dimensions", "strides", "padding")}


def fft(instruction: Any, _context: Context) -> dict[str, Any]:
    """Length of an FFT."""
    return {"fft_length": tuple(instruction.fft_length)}


def made(_instruction: Any, _context: Context) -> dict[str, Any]:
    """A copy that a backend makes."""
    return {"made": True}


def backend_config(instruction: Any, context: Context) -> str:
    """The backend's configuration as text, from whichever field the writer used."""
    data: bytes = instruction.backend_config
    if not data and instruction.backend_config_payload:
        payload = pb.Payload.FromString(instruction.backend_config_payload)
        data = resolve_payload(payload, context.payloads)
    return data.decode("utf-8", "replace")


def frontend_attributes(instruction: Any) -> dict[str, str]:
    """What the framework attached to an instruction."""
    return dict(pb.FrontendAttributes.FromString(instruction.frontend_attributes).map)


#: Stands beside a trip count that a run had, and no pass of XLA knew.
OBSERVED = "observed_trip_count"


def while_loop(instruction: Any, context: Context) -> dict[str, Any] | None:
    """The trip count, if a pass has proved and recorded it, or a run had it."""
    text = backend_config(instruction, context)
    if "known_trip_count" not in text:
        return None
    try:
        config = json.loads(text)
        observed = {OBSERVED: True} if config.get(OBSERVED) is True else {}
        return {"trip_count": int(config["known_trip_count"]["n"]), **observed}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def taken(instruction: Any) -> dict[str, Any] | None:
    """The branch that a run took, if it is stated."""
    stated = frontend_attributes(instruction).get(BRANCH)
    return None if stated is None else {BRANCH: int(stated)}


def aliases(instruction: Any) -> tuple[tuple[int, int], ...]:
    """(output index, operand index) of buffers that an instruction updates in place."""
    return tuple(
        [
            (pair.output_shape_index[0] if pair.output_shape_index else 0, pair.operand_index)
            for pair in instruction.output_operand_aliasing
        ]
    )


def custom_call(instruction: Any, context: Context) -> dict[str, Any]:
    """Target and properties of a custom call."""
    decoded: dict[str, Any] = {"target": instruction.custom_call_target}
    config = backend_config(instruction, context)
    if config:
        decoded["backend_config"] = flat_dictionary(config) or config
    if instruction.frontend_attributes:
        stated = frontend_attributes(instruction)
        decoded |= {name: stated[name] for name in (COST_ESTIMATE, REMOTE_COPIES) if name in stated}
    if instruction.convolution_dimension_numbers:
        decoded |= convolution(instruction, context)
    return decoded


_GATHER = _once("gather_dimension_numbers", _gather)
CONSTANT = _once("literal", _constant)
DOT = _once("dot_dimension_numbers", _dot)
PAD = _once("padding_config", _pad)
RAGGED_DOT = _once("ragged_dot_dimension_numbers", _ragged_dot)
SCATTER = _once("scatter_dimension_numbers", _scatter)
WINDOW = _once("window", _window)
