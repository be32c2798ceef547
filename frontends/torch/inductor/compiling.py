"""``torch.compile`` with Inductor for an absent GPU: the replacement of its backend.

The idea: Dynamo and AOTAutograd trace for the recording device.  Each graph that reaches Inductor
is put on "cuda" and lowered there; the program that it generates runs on the recording device when
it is called.  Code that cannot be compiled stays eager, and is counted.

    apply()                                     # once, before PyTorch's CUDA functions are replaced
    compiled(torch.compile, model, mode="max-autotune")
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.fx.node import map_aggregate
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import _disable_current_modes

from flint.frontends.torch.cluster.device import NAME
from flint.frontends.torch.context import capture
from flint.frontends.torch.inductor import (
    adapter,
    attention,
    counted,
    devices,
    generated,
    graphs,
    shared,
)  # fmt: skip
from flint.frontends.torch.modes import is_own, let_code_be_traced
from flint.frontends.torch.patching import always_around, plain_functions, replace
from flint.frontends.torch.user_lines import at_line, at_user_line, is_frontends, is_standard

#: Inductor's settings: no other processes, no cache from other runs, no decisions by trials on a
#: GPU.
_SETTINGS: Mapping[str, Any] = {
    "compile_threads": 1,
    "cpp_wrapper": False,
    "fx_graph_cache": False,
    "fx_graph_remote_cache": False,
    "coordinate_descent_tuning": False,
    "freezing": False,
    "max_autotune": False,
    "max_autotune_gemm": False,
    "max_autotune_pointwise": False,
    "triton.autotune_at_compile_time": False,
    "triton.cudagraphs": False,
    "triton.unique_kernel_names": True,
}

#: Settings of them that modes, options and programs turn on -> what is not as on a GPU.
_TIMED = "kernels that a GPU would choose by timing them are the default ones"
_TOLD: Mapping[str, str] = {
    "coordinate_descent_tuning": _TIMED,
    "max_autotune": _TIMED,
    "max_autotune_gemm": _TIMED,
    "max_autotune_pointwise": _TIMED,
    "freezing": "its weights are not constants: what follows from them alone is computed again",
    "triton.cudagraphs": "its kernels are launched one by one, not as a CUDA graph",
}
#: Longest text of an error in a warning, characters.
_SHOWN = 160


def apply() -> None:
    """Make Inductor work without a GPU in this process, permanently."""
    adapter.no_compiler()
    adapter.settle()
    attention.watch()
    counted.watch()
    devices.apply()
    graphs.apply()
    let_code_be_traced()
    always_around(adapter.backend(), "__call__", _compile)
    always_around(adapter.tracer(), "__call__", _traced)
    always_around(adapter.function_modes(), "__init__", _without_own_modes)
    adapter.around_left_modes(_with_own_modes)
    replace(adapter.graphs(), "_compile_to_module", generated.runnable)
    keeping, using = adapter.random_ops()
    always_around(keeping, "__call__", _with_kept_state)
    always_around(using, "__call__", _with_given_state)
    if (folder := capture().lowered) is not None:
        shared.share(folder)
    always_around(adapter.uniform_values(), "_deduce_value", _on_host)
    # Products with an integer 0, from which it would make tensors without a value here.
    replace(adapter.uniform_values(), "_add_peephole_patterns", lambda _: None)


def compiled(original: Any, model: Any, **kwargs: Any) -> Any:
    """``torch.compile`` of a model or function; with another backend the function is unchanged."""
    capture().has_compiled = True
    backend = kwargs.pop("backend", "inductor")
    if backend != "inductor":
        name = backend if isinstance(backend, str) else getattr(backend, "__name__", "its own")
        capture().notice(
            f"torch.compile{at_user_line()}: backend {name} is not Inductor: recorded as eager code"
        )
        return model
    if kwargs.pop("dynamic", None) or kwargs.pop("dynamic_shapes", None):
        capture().notice(f"torch.compile{at_user_line()}: dynamic: compiled for the step's sizes")
    # Equal backends share what they compile: a model's blocks are compiled once.
    return original(model, dynamic=False, **kwargs)


def _compile(_: Any, backend: Any, module: Any, inputs: Sequence[Any], **__: Any) -> Any:
    """The default backend of ``torch.compile``, also if an imported file has used it."""
    from torch._inductor import compile_fx, config

    capture().has_compiled = True
    asked = (name for name in _TOLD if backend.config.get(name, adapter.setting(name)))
    for text in dict.fromkeys(_TOLD[name] for name in asked):
        capture().not_compiled[f"torch.compile{at_user_line()}: {text}"] += 1
    settings = {**backend.config, **_SETTINGS}
    with config.patch(settings):
        return compile_fx.compile_fx(
            module, inputs, inner_compile=functools.partial(_lower, settings)
        )


def _lower(settings: Mapping[str, Any], module: Any, inputs: Sequence[Any], **known: Any) -> Any:
    """Lower a graph of ATen ops, forward or backward, as ``compile_fx_inner``."""
    from torch._inductor import compile_fx, config

    # A backward graph may be lowered when it first runs, under the modes of the capture.
    with (
        _assumptions_last(),
        _disable_current_modes(),
        torch._C.DisableTorchFunction(),
        plain_functions(),
    ):
        moved = _on_gpu(module, inputs)
        with config.patch({**settings, **shared.settings()}):
            return compile_fx.compile_fx_inner(module, moved, **known)


def _on_gpu(module: Any, inputs: Sequence[Any]) -> list[Any]:
    """Move a graph of the recording device, with its inputs, to the GPU."""
    graphs = [part for part in module.modules() if isinstance(part, torch.fx.GraphModule)]
    for graph in graphs:  # a function given to an op (FlexAttention's mask) is a graph within
        for node in graph.graph.nodes:
            node.args = map_aggregate(node.args, _device)
            node.kwargs = map_aggregate(node.kwargs, _device)
            for key in ("val", "example_value", "eager_input_vals"):
                if key in node.meta:
                    node.meta[key] = pytree.tree_map(_tensor, node.meta[key])
        graph.recompile()
    return [_tensor(item) for item in inputs]


def _device(item: Any) -> Any:
    return adapter.GPU if isinstance(item, torch.device) and item.type == NAME else item


def _tensor(item: Any) -> Any:
    """A fake tensor of the recording device as one of the GPU."""
    if not isinstance(item, torch.Tensor) or item.device.type != NAME:
        return item
    with getattr(item, "fake_mode"):  # noqa: B009
        return torch.empty_strided(item.size(), item.stride(), dtype=item.dtype, device=adapter.GPU)


def _traced(trace: Any, *args: Any, **kwargs: Any) -> Any:
    """Make Dynamo trace a frame of the program without its observers, or leave it eager."""
    code = args[1].f_code
    file = code.co_filename
    if is_frontends(file) or adapter.calls_hooks(code):
        return adapter.untraced()  # the program's code that it calls is traced when it is called
    # Dynamo disables modes itself, but not in the frames of a model that DDP runs.
    adapter.settle()  # the program may have other settings
    with _assumptions_last(), plain_functions(), _plain_variables(), _disable_current_modes():
        try:
            with graphs.as_one(args[0]):
                return trace(*args, **kwargs)
        except Exception as error:
            # The standard library computes nothing on tensors.
            if is_standard(file) or not adapter.is_failure(error):
                raise
            lines = str(error).strip().splitlines() or [type(error).__name__]
            text = " ".join(line.strip() for line in lines[:2])[:_SHOWN]
            where = at_line(file, code.co_firstlineno)
            if graphs.divides(error, text, where):
                return _traced(trace, *args, **kwargs)
            what = f"torch.compile{where}: recorded as eager code in part ({text})"
            capture().not_compiled[what] += 1
            raise


@contextlib.contextmanager
def _plain_variables() -> Iterator[None]:
    """Within it, variables of the environment are read as if nobody watched who asks for them."""
    kind: Any = type(os.environ)
    watched = {name: vars(kind)[name] for name in ("__getitem__", "__iter__")}
    for name, function in watched.items():
        setattr(kind, name, inspect.unwrap(function))
    try:
        yield
    finally:
        for name, function in watched.items():
            setattr(kind, name, function)


@contextlib.contextmanager
def _assumptions_last() -> Iterator[None]:
    """Within it, assumptions hold for every run: compiled code is created in the first run."""
    known = capture()
    before, known.assumed = known.assumed, Counter()
    try:
        yield
    finally:
        known.not_compiled += known.assumed
        known.assumed = before


def _with_kept_state(call: Any, kept: Any, op: Any, *args: Any, **kwargs: Any) -> Any:
    """Random numbers of a checkpointed part, and the state of a generator that draws none here."""
    if adapter.is_tracing():
        return call(kept, op, *args, **kwargs)
    return torch.get_rng_state(), op(*args, **kwargs)


def _with_given_state(call: Any, given: Any, state: Any, op: Any, *args: Any, **kwargs: Any) -> Any:
    """The same numbers when the part runs again."""
    if adapter.is_tracing():
        return call(given, state, op, *args, **kwargs)
    return op(*args, **kwargs)


def _on_host(deduce: Any, folder: Any, node: Any) -> Any:
    """A small tensor of known value; it has that value on the host only."""
    args, kwargs = node.args, node.kwargs
    node.args, node.kwargs = map_aggregate(args, _host), map_aggregate(kwargs, _host)
    try:
        return deduce(folder, node)
    finally:
        node.args, node.kwargs = args, kwargs


def _host(item: Any) -> Any:
    return torch.device("cpu") if isinstance(item, torch.device) else item


def _without_own_modes(init: Any, state: Any, modes: Any, *more: Any, **named: Any) -> None:
    init(state, [mode for mode in modes if not is_own(mode)], *more, **named)


def _with_own_modes(set_stack: Any, stack: Sequence[Any]) -> None:
    """Dynamo has not seen the own modes, which stay below the program's."""
    set_stack([*(mode for mode in adapter.modes_now() if is_own(mode)), *stack])
