"""Marin's runs with Levanter, as our JAX Llama with Levanter's loss and the attention it falls to.

The idea: Levanter asks for a fused kernel, splash attention on TPUs and Transformer Engine's on
GPUs, and takes its own attention in blocks where there is none.  Splash attention of JAX 0.5 and
0.6 (the versions of Levanter's lock file from July to September 2025, and what was out before)
takes heads of multiples of 128.  Transformer Engine is in no list of what Levanter or Marin
install, so that their runs on GPUs had none (marin-community/marin, issue 7013 and pull request
7140).

    expressed(recipe)              # Expressed
"""

from __future__ import annotations

import functools
from typing import Any

import jax
from cases_of_runs import Case
from expressed import Expressed, Part, as_run
from jax_entries import GPUS, KINDS
from levanter import blockwise, one_hot_cross_entropy
from recipes import Recipe
from trainers import first

from flint.models.jax import llama3
from flint.models.jax.layers import Heads, attention
from flint.models.jax.llama3 import Config
from flint.models.jax.training import training_step

#: Levanter's figure is a mean over the run.
DIFFERS = "no norms of parameters and gradients every tenth step"
#: Seconds of Levanter's host that no device hides, since it reads the loss of each step before it
#: issues the next (``loss.item()`` in its ``Trainer.train_step``): haliax's ``named_jit`` takes the
#: trees of the state apart and puts them together in Python.  Levanter 1.2.dev1398 of 18 June 2025
#: with haliax 1.4.dev369, JAX 0.6.2, Python 3.11 and a small Llama (42 arrays, however many layers)
#: takes 8 to 12 ms of its main thread for that, on an AMD EPYC that adds 13 million numbers in 1 s.
HOST = 10e-3
#: Seconds in which a run compiles: steps with and without norms are two programs (``train_step``
#: says so).  libtpu 0.0.42 takes 27 s of a processor for the step of the 30M, and 74 s for that of
#: the 150M, on hosts that have many: 25 s are assumed for all.
COMPILED = 2 * 25.0
#: Steps of the runs, over which that is spread: ``num_train_steps`` of their configurations.
STEPS = {
    "mar-300m-v5p": 11444, "mar-520m-v5p": 9918, "mar-1b4-v5p": 22888, "mar-300m-v4": 6000,
    "mar-1b4-h200": 19073, "mar-30m-v4": 1500, "mar-75m-v4": 6000, "mar-150m-v4": 3000,
    "mar-130m-v5p": 4959, "mar-50m-h200": 7600, "mar-50m-a100": 7600, "mar-75m-a100": 1000,
}  # fmt: skip
#: What splash attention's heads are multiples of, up to JAX 0.6.
LANES = 128


def fused(recipe: Recipe) -> bool:
    """Whether a fused kernel takes a run's attention."""
    return recipe.accelerator in KINDS and recipe.sizes["head_dim"] % LANES == 0


def loss(config: Config, params: Any, batch: Any) -> jax.Array:
    """As ``llama3.loss``, with the targets as a one-hot product."""
    return one_hot_cross_entropy(llama3.logits(config, params, batch["tokens"]), batch["targets"])


def expressed(recipe: Recipe) -> Expressed:
    """A dense model of Marin's."""
    sizes, devices = recipe.sizes, recipe.devices
    kernel = fused(recipe)
    config = Config(
        layers=sizes["layers"], width=sizes["hidden"], hidden=sizes["ffn"],
        heads=Heads(queries=sizes["heads"], keys=sizes["kv_heads"], size=sizes["head_dim"]),
        vocabulary=sizes["vocabulary"], sequence=recipe.sequence,
        sequences=recipe.batch // devices, remat="full",
        mixer=attention if kernel else functools.partial(attention, kernel=blockwise),
    )  # fmt: skip

    def capture(_: int) -> Any:
        setup = functools.partial(llama3.abstract_arguments, config)
        step = training_step(functools.partial(loss, config), setup, (devices,), ("data",))
        return step.capture()

    kind = KINDS.get(recipe.accelerator)
    system, accelerator = (
        (f"tpu-{kind}-pod", f"tpu-{kind}") if kind else first(GPUS, recipe.accelerator)
    )
    how = "splash attention" if kernel else "attention in blocks of 1,024 in plain JAX"
    case = Case(
        run=as_run(recipe),
        measured=float("nan"),
        system=system,
        accelerator=accelerator,
        key=f"levanter-{config}-{devices}",
        expressed=f"{devices} data, remat full, {how}",
        note=DIFFERS,
        capture=capture,
        slice=devices if kind else 0,
        attention="fused" if kernel else "as-written",
    )
    host = HOST + COMPILED / STEPS[recipe.id]
    differs = f"{case.expressed}; {host * 1e3:.0f} ms of the host and of compiling; {DIFFERS}"
    return Expressed((Part(1.0, case),), recipe.batch, differs, memory=False, host=host)
