"""Ops, collectives and messages as PyTorch's ExecutionTraceObserver wrote them down."""

from __future__ import annotations

_NAMESPACES = ("c10d", "_c10d_functional")
_DTYPES = {
    "float": "float32", "c10::BFloat16": "bfloat16", "long int": "int64", "unsigned char": "uint8",
    "bool": "bool", "int": "int32",
}  # fmt: skip
_SILENT = ("wait_tensor", "_wrap_tensor_autograd")


def observed_ops(nodes, names):
    """Names of a trace's nodes, of those named in ``names``; not of what is inside of others.

    For traces of one rank: see ``observed_collectives``.
    """
    by_id = {node["id"]: node for node in nodes}

    def inside(node):
        while node["ctrl_deps"] in by_id and node["ctrl_deps"] != node["id"]:
            node = by_id[node["ctrl_deps"]]
            if node["name"] in names:
                return True
        return False

    ordered = sorted(nodes, key=lambda node: node["id"])
    return [node["name"] for node in ordered if node["name"] in names and not inside(node)]


def collectives_of(ops):
    """(name, [(elements, dtype), ...] of the tensors that it takes), in order, of plain ops."""
    found = []
    for op in ops:
        namespace, _, rest = op["name"].partition(".")
        base = rest.rsplit(".", 1)[0]
        if namespace in _NAMESPACES and "group" in op:
            sizes = [_size(view) for view in _views(op["args"])]
            # The tensor of a barrier only says for which device it is.
            found.append((f"{namespace}::{base}", [] if base == "barrier" else sizes))
    return found


def observed_collectives(nodes):
    """The same, of a trace's nodes.

    A functional collective calls one of c10d's to do its work: the next one, which does not count.
    (Which node is inside of which is no help: gloo ends its works on other threads, and the
    observer then takes what comes next for a part of them now and then.)
    """
    found, inner = [], False
    for node in sorted(nodes, key=lambda item: item["id"]):
        namespace, _, base = node["name"].partition("::")
        if namespace not in _NAMESPACES or base in _SILENT:
            continue
        if inner:
            assert namespace == "c10d", f"{found[-1][0]} called no collective of c10d"
            inner = False
            continue
        inner = namespace != "c10d"
        inputs = node["inputs"]
        sizes = list(_sizes(inputs["shapes"], inputs["types"], inputs["values"]))
        found.append((node["name"], [] if base == "barrier" else sizes))
    return found


def _views(item):
    if isinstance(item, dict):
        yield item["view"]
    elif isinstance(item, list):
        for part in item:
            yield from _views(part)


def _size(view):
    count = 1
    for size in view[2]:
        count *= size
    return count, view[4]


def _sizes(shapes, types, values):
    """Elements and dtypes of tensors, whose values are [id, storage, offset, elements, ...]."""
    for shape, kind, value in zip(shapes, types, values, strict=True):
        if kind.startswith("Tensor("):
            yield value[3], _DTYPES[kind[7:-1]]
        elif kind.startswith("GenericList["):
            parts = _split(kind[12:-1])
            yield from _sizes(shape, parts, value)


def _split(kinds):
    """Kinds of a list's items, which commas part outside of brackets."""
    depth, parts, start = 0, [], 0
    for i, letter in enumerate(kinds):
        depth += (letter in "[(") - (letter in "])")
        if letter == "," and depth == 0:
            parts.append(kinds[start:i])
            start = i + 1
    return [part for part in (*parts, kinds[start:]) if part]
