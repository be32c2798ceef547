"""Missing checkpoints and pretrained weights.

The idea: values of tensors on the device do not matter, so a model or optimizer that receives a
made-up state stays unchanged.  Counters (``checkpoint["epoch"]``) are 0.  Values that decide about
shapes (``checkpoint["model_args"]["n_layer"]``) cannot be known here: using one is an error that
names it.

    state = torch.load("none.pt")
    model.load_state_dict(state["model"])           # changes nothing
    for epoch in range(state["epoch"], 90): ...     # from 0 on
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from typing import Any, NoReturn

import torch
from torch.optim import lr_scheduler

from flint.errors import FlintError
from flint.frontends.torch.patching import around
from flint.frontends.torch.user_lines import at_user_line
from flint.launching.stand_ins.missing import Made, StandIn

#: Names of counters that start from 0.
_COUNTER = re.compile(r"(\w*_)?(epochs?|steps?|iter\w*|iteration\w*|batch\w*|tokens|seen)(_\w+)?")


class MissingCheckpointShape:
    """The shape of a missing tensor: that of the one which it is compared with."""

    def __init__(self, unknown: Callable[[], NoReturn]) -> None:
        self._unknown = unknown

    def __eq__(self, _: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 0

    def __getitem__(self, _: Any) -> MissingCheckpointShape:
        return self

    def _is_used(self, *_: Any) -> Any:
        self._unknown()

    __int__ = __index__ = __float__ = __iter__ = __len__ = _is_used
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = _is_used
    __pow__ = __floordiv__ = __mod__ = __lt__ = __le__ = __gt__ = __ge__ = _is_used


class MissingCheckpointValue(dict[Any, Any]):
    """An unknown state: it has every name, and no items."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, slice | tuple):
            self._unknown()
        return super().__getitem__(key)

    def __missing__(self, key: Any) -> Any:
        if isinstance(key, str) and _COUNTER.fullmatch(key):
            return 0
        return MissingCheckpointValue(f"{self.name}[{key!r}]")

    def __contains__(self, key: object) -> bool:
        return True

    def __bool__(self) -> bool:
        return True

    def get(self, key: Any, default: Any = None) -> Any:
        return self[key] if default is None else default

    def pop(self, key: Any, *_: Any) -> Any:
        return self[key]

    def __enter__(self) -> MissingCheckpointValue:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing was opened."""

    @property
    def shape(self) -> MissingCheckpointShape:
        """Of a tensor: one that fits."""
        return MissingCheckpointShape(self._unknown)

    def metadata(self) -> dict[str, str]:
        """Of a file of safetensors."""
        return {"format": "pt"}

    def _unknown(self, *_: Any) -> NoReturn:
        raise FlintError(
            f"{self.name} is used as a number or an array{at_user_line()}: that checkpoint is "
            "missing, and only the program knows this value; give the program a checkpoint of the "
            "same form, or start it without one"
        )

    __int__ = __index__ = __float__ = _unknown
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = _unknown
    __floordiv__ = __mod__ = __lt__ = __le__ = __gt__ = __ge__ = _unknown


#: Made-up states that the program was given.
_given: list[MissingCheckpointValue] = []


def apply() -> None:
    """Leave objects unchanged that receive a made-up state."""
    schedulers = [item for item in vars(lr_scheduler).values() if isinstance(item, type)]
    kinds = (torch.nn.Module, torch.optim.Optimizer, torch.amp.GradScaler, *schedulers)
    for kind in kinds:
        if "load_state_dict" in vars(kind):
            around(kind, "load_state_dict", _loaded)


def _loaded(load: Any, owner: Any, state_dict: Any, *args: Any, **kwargs: Any) -> Any:
    # {new_name(key): value for key, value in state.items()} is not a made-up state, and is empty.
    if isinstance(state_dict, MissingCheckpointValue) or (_given and not state_dict):
        keys = torch.nn.modules.module._IncompatibleKeys([], [])
        return keys if isinstance(owner, torch.nn.Module) else None
    return load(owner, state_dict, *args, **kwargs)


def _state(name: Any, *_: Any, **__: Any) -> Made:
    made = MissingCheckpointValue(f"the checkpoint {name}")
    _given.append(made)
    return made, f"checkpoint {name}: objects that load it stay as they are, counters are 0"


def _model(kind: Any, name: Any = None, *_: Any, config: Any = None, **kwargs: Any) -> Made:
    transformers: Any = sys.modules["transformers"]
    if not isinstance(config, transformers.PretrainedConfig):
        try:
            config = kind.config_class.from_pretrained(config or name, local_files_only=True)
        except OSError:
            raise FlintError(
                f"{name} is missing{at_user_line()}, and so is its config.json, without which the "
                "model cannot be created: put that file into a folder, and name the folder instead"
            ) from None
    dtype = kwargs.get("dtype", kwargs.get("torch_dtype"))
    given = {} if dtype in (None, "auto") else {"dtype": dtype}
    return kind._from_config(config, **given), f"weights of {name}: as initialised by the model"


STAND_INS = (
    StandIn("torch", "load", _state),
    StandIn("torch.hub", "load_state_dict_from_url", _state),
    StandIn("safetensors", "safe_open", _state),
    StandIn("safetensors.torch", "load_file", _state),
    StandIn("transformers.modeling_utils", "PreTrainedModel.from_pretrained", _model),
)
