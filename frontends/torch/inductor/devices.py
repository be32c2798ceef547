"""Devices in code that Dynamo traces: the program sees "cuda", the graph has the recording device.

The idea: Dynamo answers ``x.is_cuda`` and ``x.device.type`` itself, and calls none of the functions
that a capture has replaced.  What it takes for a constant is a device of CUDA, so that the program
takes the branches that it takes on a GPU; in the ops of its graph, each such device is the
recording device, as in eager code.

Private parts of torch._dynamo, as in torch 2.12 to 2.14 (``adapter.py`` has the rest).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.utils import _pytree as pytree

from flint.frontends.torch.cluster.cuda import mapped, recording_device
from flint.frontends.torch.cluster.device import NAME
from flint.frontends.torch.cluster.device_words import numbered
from flint.frontends.torch.patching import always_around

_CUDA = "cuda"


def apply() -> None:
    """Let traced code see CUDA, permanently."""
    from torch._dynamo.codegen import PyCodegen
    from torch._dynamo.output_graph import SubgraphTracer
    from torch._dynamo.variables.constant import ConstantVariable
    from torch._dynamo.variables.ctx_manager import AutocastModeVariable
    from torch._dynamo.variables.tensor import TensorVariable

    always_around(TensorVariable, "specialize", _properties)
    always_around(ConstantVariable, "__init__", _constant)
    always_around(PyCodegen, "create_load_const", _loaded)
    always_around(SubgraphTracer, "create_proxy", _in_graph)
    always_around(AutocastModeVariable, "create", _autocast)


def _shown(item: Any) -> Any:
    """The recording device as the program sees it; any other object is unchanged."""
    if isinstance(item, torch.device) and item.type == NAME:
        return torch.device(_CUDA, numbered(torch.device(NAME, 0)))
    return item


def _properties(specialize: Any, tensor: Any) -> dict[str, Any]:
    """What is constant about a tensor."""
    found: dict[str, Any] = specialize(tensor)
    return found | {"device": _shown(found["device"])}


def _constant(init: Any, variable: Any, value: Any, *args: Any, **kwargs: Any) -> None:
    init(variable, _shown(value), *args, **kwargs)


def _loaded(load: Any, codegen: Any, value: Any) -> Any:
    """A constant that goes back to code that is not traced."""
    return load(codegen, mapped(value) if isinstance(value, torch.device) else value)


def _in_graph(
    create: Any, tracer: Any, kind: str, target: Any, args: Any, kwargs: Any, *more: Any,
    **named: Any,
) -> Any:  # fmt: skip
    """An op of the graph."""
    if target in (_CUDA, torch.Tensor.cuda):
        kind, target = "call_method", "to"
        args = (args[0], recording_device())
        kwargs = {key: item for key, item in kwargs.items() if key == "non_blocking"}
    if kind in ("call_function", "call_method"):
        args, kwargs = pytree.tree_map_only((torch.device, str), mapped, (args, kwargs))
        if "device" in kwargs:
            kwargs = {**kwargs, "device": _of(kwargs)}
    return create(tracer, kind, target, args, kwargs, *more, **named)


def _of(kwargs: Mapping[str, Any]) -> Any:
    """A device that may be a number."""
    device = kwargs["device"]
    is_number = isinstance(device, int) and not isinstance(device, bool)
    return recording_device() if is_number else device


def _autocast(create: Any, *args: Any) -> Any:
    """A region of mixed precision."""
    found = create(*args)
    values = found.target_values
    found.target_values = [NAME if item == _CUDA else item for item in values]
    return found
