"""One form for records of both readers, minus what XLA's conversion to StableHLO changes."""

from collections import Counter

import numpy as np

from flint.stablehlo.read.records import ReplicaGroups


def expand(groups):
    """The table of a ReplicaGroups in list or iota form; mesh forms stay as they are."""
    if groups.iota is not None:
        (count, size), dims, permutation = groups.iota
        devices = np.arange(count * size).reshape(dims).transpose(permutation)
        return devices.reshape(count, size).tolist()
    if groups.mesh is not None:
        # XLA's conversion to StableHLO drops the mesh's device order.
        return groups.mesh[:2]
    return None if groups.table is None else groups.table.tolist()


def plain(value):
    if isinstance(value, ReplicaGroups):
        return repr(expand(value))
    if isinstance(value, np.ndarray):
        return value.dtype.kind, value.shape, value.tolist()
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return value


def attributes(op, module):
    attrs = {key: plain(value) for key, value in (op.attrs or {}).items() if value is not False}
    if op.name == "custom_call":
        attrs.pop("use_global_device_ids", None)
        if attrs.get("target") == "ragged_all_to_all":
            attrs.pop("backend_config", None)
    return attrs


def canonical(op, module):
    """(name, attributes) with HLO's and StableHLO's spellings of the same thing made one."""
    if op.name == "dot" or (op.name == "dot_general" and _is_plain_dot(op, module)):
        return "dot", {}
    if op.name == "mhlo.bitcast":
        return "reshape", {}
    return op.name, attributes(op, module)


def _is_plain_dot(op, module):
    rank = len(module.type_of(op.operands[0]).shape)
    attrs = op.attrs
    return (
        not attrs["lhs_batching"]
        and attrs["lhs_contracting"] == (rank - 1,)
        and attrs["rhs_contracting"] == (0,)
    )


def inventory(module):
    """Every op with its types, attributes and the regions around it -> how often it occurs."""
    found = Counter()
    parts = {}  # a result of tuple type -> what get_tuple_element takes out of it
    for block in module.functions.values():
        for op in block.ops:
            if op.name == "get_tuple_element":
                parts.setdefault(op.operands[0], {})[op.attr("index")] = op.results[0]

    def visit(block, where):
        for op in block.ops:
            if op.name == "get_tuple_element":
                continue
            results = op.results
            if len(results) == 1 and results[0] in parts:
                results = tuple(value for _, value in sorted(parts[results[0]].items()))
            name, attrs = canonical(op, module)
            types = [tuple(str(module.type_of(v)) for v in vs) for vs in (op.operands, results)]
            found[where, name, *types, repr(sorted(attrs.items()))] += 1
            for number, region in enumerate(op.regions):
                visit(region, (*where, op.name, number))

    for name, block in module.functions.items():
        visit(block, ("main" if name == "main" else "function",))
    return found


def dataflow(module):
    """Each output's history as a nested hash: equal for equal programs, whatever the order."""

    def visit(block, known):
        for op in block.ops:
            name, attrs = canonical(op, module)
            inputs = tuple(known[v] for v in op.operands)
            inner = []
            for region in op.regions:
                scope = dict(known)
                scope.update({v: hash(("argument", i)) for i, v in enumerate(region.args)})
                inner.append(visit(region, scope))
            if name == "call":
                callee = module.functions[op.attr("callee")]
                scope = {v: known[o] for v, o in zip(callee.args, op.operands, strict=True)}
                outputs = visit(callee, scope)
                known.update(zip(op.results, outputs, strict=True))
                continue
            if name == "get_tuple_element":
                source = (known[op.operands[0]], op.attr("index"))
                known[op.results[0]] = hash(source)
                continue
            key = (name, inputs, tuple(inner), repr(sorted(attrs.items())))
            is_tuple = [module.type_of(v).dtype == "tuple" for v in op.results]
            for index, value in enumerate(op.results):
                whole = is_tuple[0] or (len(op.results) == 1 and name != "custom_call")
                known[value] = hash(key) if whole else hash((hash(key), index))
        return tuple(known[v] for v in block.yields)

    main = module.functions["main"]
    return visit(main, {v: hash(("input", i)) for i, v in enumerate(main.args)})
