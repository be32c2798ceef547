"""Attribute decoders: MLIR attributes -> the plain Python that rules read.

The idea: one row per op that has attributes worth reading; an op without a row costs nothing.  The
names and forms on the right-hand side are those of the table in ``records.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flint.stablehlo.read.bindings import attribute_text, chlo, ir, stablehlo
from flint.stablehlo.read.records import ReplicaGroups

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


def integer_array(attribute: Any) -> NDArray[np.int64]:
    """A dense integer elements attribute as an int64 array of its shape."""
    dense = ir.DenseIntElementsAttr(attribute)
    shape = tuple(ir.RankedTensorType(dense.type).shape)
    if dense.is_splat:
        value: Any = dense.get_splat_value()
        return np.full(shape, _as_int64(int(value.value)), dtype=np.int64)
    items: Any = dense
    return np.array(items, dtype=np.int64).reshape(shape)


def _as_int64(number: int) -> int:
    """``number`` modulo 2**64 as a signed one: how a ui64 is held in int64."""
    return (number + 2**63) % 2**64 - 2**63


def _pairs(attributes: Any, key: str) -> tuple[tuple[int, int], ...]:
    if key not in attributes:
        return ()
    return tuple((int(low), int(high)) for low, high in integer_array(attributes[key]))


def _dot_general(op: Any, _reader: Any) -> dict[str, Any]:
    numbers = stablehlo.DotDimensionNumbers(op.attributes["dot_dimension_numbers"])
    return {
        "lhs_batching": tuple(numbers.lhs_batching_dimensions),
        "rhs_batching": tuple(numbers.rhs_batching_dimensions),
        "lhs_contracting": tuple(numbers.lhs_contracting_dimensions),
        "rhs_contracting": tuple(numbers.rhs_contracting_dimensions),
    }


def _convolution(op: Any, _reader: Any) -> dict[str, Any]:
    attributes = op.attributes
    n = stablehlo.ConvDimensionNumbers(attributes["dimension_numbers"])
    decoded: dict[str, Any] = {
        "input_batch": n.input_batch_dimension,
        "input_feature": n.input_feature_dimension,
        "input_spatial": tuple(n.input_spatial_dimensions),
        "kernel_input_feature": n.kernel_input_feature_dimension,
        "kernel_output_feature": n.kernel_output_feature_dimension,
        "kernel_spatial": tuple(n.kernel_spatial_dimensions),
        "output_batch": n.output_batch_dimension,
        "output_feature": n.output_feature_dimension,
        "output_spatial": tuple(n.output_spatial_dimensions),
        "feature_group_count": _int(attributes["feature_group_count"]),
        "batch_group_count": _int(attributes["batch_group_count"]),
    }
    for key, name in (
        ("window_strides", "strides"),
        ("lhs_dilation", "lhs_dilation"),
        ("rhs_dilation", "rhs_dilation"),
    ):
        if key in attributes:
            decoded[name] = _ints(attributes[key])
    if "padding" in attributes:
        decoded["padding"] = _pairs(attributes, "padding")
    return decoded


def _fields(**fields: tuple[str, Callable[[Any], Any]]) -> Decoder:
    """A decoder of plain attributes: our name -> (MLIR name, conversion); absent ones stay out."""
    rows = tuple((name, key, convert) for name, (key, convert) in fields.items())

    def decode(op: Any, _reader: Any) -> dict[str, Any]:
        attributes = op.attributes
        return {name: convert(attributes[key]) for name, key, convert in rows if key in attributes}

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
        return {"value": np.array(_as_int64(int(splat.value)), dtype=np.int64)}
    if len(value) > MAX_CONSTANT_ELEMENTS:
        return None
    try:
        return {"value": integer_array(value)}
    except TypeError:  # The bindings do not hand out elements of less than a byte.
        return None


def _compare(op: Any, _reader: Any) -> dict[str, Any]:
    direction = stablehlo.ComparisonDirectionAttr(op.attributes["comparison_direction"])
    return {"direction": str(direction.value)}


def _gather(op: Any, _reader: Any) -> dict[str, Any]:
    numbers = stablehlo.GatherDimensionNumbers(op.attributes["dimension_numbers"])
    return {
        "slice_sizes": _ints(op.attributes["slice_sizes"])
        if "slice_sizes" in op.attributes
        else (),
        "offset_dims": tuple(numbers.offset_dims),
        "collapsed_slice_dims": tuple(numbers.collapsed_slice_dims),
        "index_vector_dim": numbers.index_vector_dim,
    }


def _scatter(op: Any, _reader: Any) -> dict[str, Any]:
    numbers = stablehlo.ScatterDimensionNumbers(op.attributes["scatter_dimension_numbers"])
    return {
        "update_window_dims": tuple(numbers.update_window_dims),
        "index_vector_dim": numbers.index_vector_dim,
    }


def _ragged_dot(op: Any, _reader: Any) -> dict[str, Any]:
    numbers = chlo.RaggedDotDimensionNumbers(op.attributes["ragged_dot_dimension_numbers"])
    return {
        "lhs_batching": tuple(numbers.lhs_batching_dimensions),
        "rhs_batching": tuple(numbers.rhs_batching_dimensions),
        "lhs_contracting": tuple(numbers.lhs_contracting_dimensions),
        "rhs_contracting": tuple(numbers.rhs_contracting_dimensions),
        "rhs_group": tuple(numbers.rhs_group_dimensions),
    }


def _callee(op: Any, reader: Any) -> dict[str, Any]:
    callee = str(ir.FlatSymbolRefAttr(op.attributes["callee"]).value)
    reader.pending.append(callee)
    return {"callee": callee}


def _composite(op: Any, reader: Any) -> dict[str, Any]:
    attributes = op.attributes
    decomposition = str(ir.FlatSymbolRefAttr(attributes["decomposition"]).value)
    reader.pending.append(decomposition)
    decoded: dict[str, Any] = {
        "name": attribute_text(attributes["name"]),
        "decomposition": decomposition,
    }
    if "composite_attributes" in attributes:
        decoded["attributes"] = {
            item.name: plain(item.attr) for item in entries(attributes["composite_attributes"])
        }
    return decoded


def entries(attribute: Any) -> Any:
    """The named attributes of a dictionary; the bindings' stubs do not say that it is iterable."""
    return ir.DictAttr(attribute)


def plain(attribute: Any) -> Any:
    """An attribute as plain Python: number, bool, str, list, dict, int64 array; else its text."""
    if isinstance(attribute, ir.BoolAttr):
        return bool(attribute.value)
    if isinstance(attribute, ir.IntegerAttr | ir.FloatAttr):
        return attribute.value
    if isinstance(attribute, ir.StringAttr):
        return str(attribute.value)
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
    """The items of an array attribute, none where it is not given."""
    return ir.ArrayAttr(op.attributes[name]) if name in op.attributes else ()


def _custom_call(op: Any, reader: Any) -> dict[str, Any]:
    attributes = op.attributes
    decoded: dict[str, Any] = {"target": attribute_text(attributes["call_target_name"])}
    if "api_version" in attributes:
        decoded["api_version"] = _int(attributes["api_version"])
    if "backend_config" in attributes:
        decoded["backend_config"] = plain(attributes["backend_config"])
    if "has_side_effect" in attributes:
        decoded["has_side_effect"] = bool(ir.BoolAttr(attributes["has_side_effect"]).value)
    if "output_operand_aliases" in attributes:
        aliases = []
        for item in ir.ArrayAttr(attributes["output_operand_aliases"]):
            alias = stablehlo.OutputOperandAlias(item)
            output = list(alias.output_tuple_indices)
            aliases.append((output[0] if output else 0, alias.operand_index))
        decoded["aliases"] = tuple(aliases)
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


def _channel(attributes: Any) -> dict[str, Any]:
    decoded: dict[str, Any] = {"channel_id": 0, "use_global_device_ids": False}
    if "channel_handle" in attributes:
        decoded["channel_id"] = stablehlo.ChannelHandle(attributes["channel_handle"]).handle
    if "use_global_device_ids" in attributes:
        decoded["use_global_device_ids"] = True
    return decoded


def replica_groups(attribute: Any, reader: Any) -> ReplicaGroups:
    """Replica groups of either form of the StableHLO attribute; equal ones are one object."""
    known: ReplicaGroups | None = reader.groups.get(attribute)
    if known is None:
        known = reader.groups[attribute] = _replica_groups(attribute, reader)
    return known


def _replica_groups(attribute: Any, reader: Any) -> ReplicaGroups:
    if isinstance(attribute, ir.DenseIntElementsAttr):
        table = integer_array(attribute)
        return ReplicaGroups(table=table) if table.size else ReplicaGroups()
    groups: Any = stablehlo.ReplicaGroupMeshAxesAttr(attribute)
    device_ids: tuple[int, ...] = ()
    if isinstance(groups.mesh, ir.FlatSymbolRefAttr):
        axes = reader.meshes[str(groups.mesh.value)]
        device_ids = reader.device_orders.get(str(groups.mesh.value), ())
    else:
        mesh: Any = stablehlo.MeshAttr(groups.mesh)
        axes = tuple((axis.name, axis.size) for axis in map(stablehlo.MeshAxisAttr, mesh.axes))
        device_ids = tuple(mesh.device_ids or ())
    along: list[tuple[str, tuple[int, int] | None]] = []
    for item in groups.axes:
        axis: Any = stablehlo.AxisRefAttr(item)
        info = axis.sub_axis_info
        if info is None:
            along.append((axis.name, None))
        else:
            sub_axis = stablehlo.SubAxisInfoAttr(info)
            along.append((axis.name, (sub_axis.pre_size, sub_axis.size)))
    entry: tuple[Any, ...] = (axes, tuple(along))
    if device_ids:
        entry = (*entry, np.array(device_ids, dtype=np.int64))
    return ReplicaGroups(mesh=entry)


def _collective(**extra: tuple[str, Callable[[Any], Any]]) -> Decoder:
    fields = _fields(**extra)

    def decode(op: Any, reader: Any) -> dict[str, Any]:
        decoded = _channel(op.attributes) | fields(op, reader)
        decoded["groups"] = replica_groups(op.attributes["replica_groups"], reader)
        return decoded

    return decode


def _point_to_point(op: Any, reader: Any) -> dict[str, Any]:
    attributes = op.attributes
    decoded = _channel(attributes)
    if "source_target_pairs" in attributes:
        written = attributes["source_target_pairs"]
        if written not in reader.pairs:
            reader.pairs[written] = integer_array(written).reshape(-1, 2)
        decoded["pairs"] = reader.pairs[written]
    if "is_host_transfer" in attributes:
        decoded["is_host_transfer"] = bool(ir.BoolAttr(attributes["is_host_transfer"]).value)
    return decoded


_DIMENSIONS = _fields(dimensions=("dimensions", _ints))
_DIMENSION = _fields(dimension=("dimension", _int))

_ALL_TO_ALL = _collective(
    split_dimension=("split_dimension", _int),
    concat_dimension=("concat_dimension", _int),
    split_count=("split_count", _int),
)

#: Op name -> how its attributes are read.
DECODERS: dict[str, Decoder] = {
    "all_gather": _collective(dimension=("all_gather_dim", _int)),
    "all_reduce": _collective(),
    "all_to_all": _ALL_TO_ALL,
    "broadcast": _fields(sizes=("broadcast_sizes", _ints)),
    "broadcast_in_dim": _fields(dimensions=("broadcast_dimensions", _ints)),
    "call": _callee,
    "collective_broadcast": _collective(),
    "collective_permute": _point_to_point,
    "compare": _compare,
    "composite": _composite,
    "concatenate": _DIMENSION,
    "constant": _constant,  # type: ignore[dict-item]  # None means "no attributes"
    "convolution": _convolution,
    "custom_call": _custom_call,
    "dot_general": _dot_general,
    "dynamic_conv": _convolution,
    "einsum": _fields(config=("einsum_config", attribute_text)),
    "dynamic_gather": _gather,
    "dynamic_slice": _fields(sizes=("slice_sizes", _ints)),
    "fft": _fields(fft_length=("fft_length", _ints), fft_type=("fft_type", str)),
    "gather": _gather,
    "get_dimension_size": _DIMENSION,
    "get_tuple_element": _fields(index=("index", _int)),
    "iota": _fields(dimension=("iota_dimension", _int)),
    "map": _DIMENSIONS,
    # XLA's conversion keeps the tuple form of all-to-all, which StableHLO lacks.
    "mhlo.all_to_all": _ALL_TO_ALL,
    "mhlo.topk": _fields(k=("k", _int)),
    "pad": _fields(
        low=("edge_padding_low", _ints),
        high=("edge_padding_high", _ints),
        interior=("interior_padding", _ints),
    ),
    "recv": _point_to_point,
    "reduce": _DIMENSIONS,
    "reduce_scatter": _collective(dimension=("scatter_dimension", _int)),
    "reduce_window": _fields(
        window_dimensions=("window_dimensions", _ints),
        strides=("window_strides", _ints),
        base_dilations=("base_dilations", _ints),
        window_dilations=("window_dilations", _ints),
        padding=("padding", _int_pairs),
    ),
    "reverse": _DIMENSIONS,
    "scatter": _scatter,
    "select_and_scatter": _fields(
        window_dimensions=("window_dimensions", _ints),
        strides=("window_strides", _ints),
        padding=("padding", _int_pairs),
    ),
    "send": _point_to_point,
    "slice": _fields(
        start=("start_indices", _ints), limit=("limit_indices", _ints), strides=("strides", _ints)
    ),
    "sort": _DIMENSION,
    "transpose": _fields(dimensions=("permutation", _ints)),
    "chlo.ragged_dot": _ragged_dot,
    "chlo.top_k": _fields(k=("k", _int)),
    "triangular_solve": _fields(left_side=("left_side", lambda a: bool(ir.BoolAttr(a).value))),
}
