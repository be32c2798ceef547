"""The names of the program's tensors: parameters, optimizer state, batch.

The idea: the step's arguments are searched for modules, optimizers and tensors; tensors that exist
before the step get the user's names, by storage, and modules get the paths that mark ops.

    names = Names.of({"model": model, "optimizer": optimizer, "batch": tokens})
    names.known[storage]                 # Named("parameter", "model.layers.0.wq.weight", tensor)
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import torch

from flint.frontends.torch.recording.tracking import clean

#: Pipeline stages; their import imports Dynamo, a second of processor time.
PIPELINING: Final = "torch.distributed.pipelining"
#: Depth to which containers and objects among the arguments are searched.
_DEPTH = 6


@dataclass(frozen=True, slots=True)
class Named:
    """A tensor with a name; role as in ``recording.Input``."""

    role: str
    name: str
    tensor: torch.Tensor


@dataclass(slots=True)
class Names:
    """Names of what exists before a step.

    Attributes:
        modules: path of every module; without the argument's name if the models' own names differ.
        tensors: in the order of the arguments; the local shards of distributed ones.
    """

    modules: dict[torch.nn.Module, str] = field(default_factory=dict)
    tensors: list[Named] = field(default_factory=list)
    _parameters: dict[int, str] = field(default_factory=dict)


def local(tensor: torch.Tensor) -> torch.Tensor:
    """The part of a tensor that a rank holds: its shard."""
    while hasattr(tensor, "_local_tensor"):
        tensor = tensor._local_tensor
    return tensor


def roots(arguments: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Modules, optimizers and tensors among arguments, with names such as "batch[0]"."""
    stages: Any = getattr(sys.modules.get(f"{PIPELINING}.stage"), "_PipelineStageBase", ())
    seen: set[int] = set()

    def walk(name: str, item: Any, depth: int) -> Iterator[tuple[str, Any]]:
        if id(item) in seen or depth > _DEPTH:
            return
        if isinstance(item, torch.nn.Module | torch.optim.Optimizer | torch.Tensor):
            seen.add(id(item))
            yield name, item
        elif isinstance(item, Mapping):
            seen.add(id(item))
            for key, value in item.items():
                yield from walk(f"{name}[{key!r}]", value, depth + 1)
        elif isinstance(item, list | tuple):
            seen.add(id(item))
            for index, value in enumerate(item):
                yield from walk(f"{name}[{index}]", value, depth + 1)
        elif isinstance(item, stages):
            seen.add(id(item))
            yield from walk(f"stage[{item.stage_index}]", item.submod, depth + 1)
        elif hasattr(item, "__dict__") and not isinstance(item, type) and not callable(item):
            seen.add(id(item))
            for key, value in vars(item).items():
                yield from walk(f"{name}.{key}", value, depth + 1)

    for name, item in arguments.items():
        yield from walk(name, item, 0)


def names_of(
    arguments: Mapping[str, Any],
    modules: Iterable[torch.nn.Module] = (),
    optimizers: Iterable[torch.optim.Optimizer] = (),
) -> Names:
    """Names of everything in the arguments.

    Args:
        arguments: the step's, by parameter name.
        modules, optimizers: others that the step was seen to use.
    """
    found = list(roots(arguments))
    known = {id(item) for _, item in found}
    found += [("model", item) for item in modules if id(item) not in known]
    found += [("optimizer", item) for item in optimizers if id(item) not in known]
    names = Names()
    models = _outermost([(name, item) for name, item in found if isinstance(item, torch.nn.Module)])
    alone = _distinct([model for _, model in models])
    for name, model in models:
        _name_model(names, name, model, alone)
    for name, item in found:
        if isinstance(item, torch.optim.Optimizer):
            _name_optimizer(names, name, item)
    for name, item in found:
        if isinstance(item, torch.Tensor):
            names.tensors.append(Named("batch", name, local(item)))
    return names


def _outermost(
    models: list[tuple[str, torch.nn.Module]],
) -> list[tuple[str, torch.nn.Module]]:
    """Modules that are not part of another one."""
    inner = {id(child) for _, model in models for child in list(model.modules())[1:]}
    return [(name, model) for name, model in models if id(model) not in inner]


def _distinct(models: list[torch.nn.Module]) -> bool:
    """Whether the models' parameters have different names of their own."""
    paths = [path for model in models for path, _ in model.named_parameters()]
    return len(set(paths)) == len(paths)


def _name_model(names: Names, prefix: str, model: torch.nn.Module, alone: bool) -> None:
    wrapper = type(model).__name__ == "DistributedDataParallel"
    for path, module in model.named_modules():
        inside = clean(path.removeprefix("module").lstrip(".") if wrapper else path)
        names.modules[module] = inside if alone else f"{prefix}.{inside}".rstrip(".")
    for path, parameter in model.named_parameters():
        inside = clean(path.removeprefix("module.") if wrapper else path)
        name = f"{prefix}.{inside}"
        names._parameters[id(parameter)] = inside if alone else name
        names.tensors.append(Named("parameter", name, local(parameter)))
        if parameter.grad is not None:
            names.tensors.append(Named("unknown", f"{name}.grad", local(parameter.grad)))
    for path, buffer in model.named_buffers():
        inside = clean(path.removeprefix("module.") if wrapper else path)
        names.tensors.append(Named("constant", f"{prefix}.{inside}", local(buffer)))


def _name_optimizer(names: Names, prefix: str, optimizer: torch.optim.Optimizer) -> None:
    for index, (parameter, state) in enumerate(optimizer.state.items()):
        name = names._parameters.get(id(parameter), str(index))
        for key, value in state.items():
            if isinstance(value, torch.Tensor):
                names.tensors.append(
                    Named("optimizer state", f"{prefix}.{name}.{key}", local(value))
                )
    for index, group in enumerate(optimizer.param_groups):
        for key, value in group.items():
            if isinstance(value, torch.Tensor):
                named = Named("optimizer state", f"{prefix}.groups[{index}].{key}", local(value))
                names.tensors.append(named)
