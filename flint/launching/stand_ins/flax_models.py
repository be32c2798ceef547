"""Missing weights of the flax models of ``transformers`` (before its version 5).

The idea: the model that the configuration describes, initialised as for a training from scratch.

    FlaxAutoModelForCausalLM.from_pretrained("folder")      # with a config.json, without weights
"""

from __future__ import annotations

import sys
from typing import Any

from flint.errors import FlintError
from flint.launching.stand_ins.missing import Made, StandIn

#: Arguments of ``from_pretrained`` that the model itself takes.
_OWN = ("dtype", "seed", "input_shape")


def _model(kind: Any, name: Any = None, *_: Any, config: Any = None, **known: Any) -> Made:
    transformers: Any = sys.modules["transformers"]
    if not isinstance(config, transformers.PretrainedConfig):
        try:
            config = kind.config_class.from_pretrained(config or name, local_files_only=True)
        except OSError:
            raise FlintError(
                f"{name} is missing, and so is its config.json, without which the model cannot be "
                "created: put that file into a folder, and name the folder instead"
            ) from None
    given = {word: known[word] for word in _OWN if word in known}
    return kind(config, **given), f"weights of {name}: as initialised by the model"


STAND_INS = (
    StandIn("transformers.modeling_flax_utils", "FlaxPreTrainedModel.from_pretrained", _model),
)
