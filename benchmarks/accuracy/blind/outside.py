"""What a step adds of which only the blocks are compiled: embedding, head, loss and optimizer, an
operation a kernel.

The idea: a step is a line in its blocks, so what is outside of them is a step without any, which
two shallow ones give. Once as PyTorch runs it, less once as in a compiled step:

    2 x (eager, 1 block) - (eager, 2 blocks) - 2 x (compiled, 1 block) + (compiled, 2 blocks)

    parts += outside(recipe, config, {"dp": 8}, accumulated=2, each=1)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from cases_of_runs import Case
from expressed import Part, as_run
from recipes import Recipe
from torch_cases import torch_case
from trainers import CHECKPOINTS, SYSTEMS, first

from flint.models.torch.llama3_model import Config

#: Blocks of the two shallow steps -> their weights in a step without any.
_NONE = ((1, 2.0), (2, -1.0))


def outside(
    recipe: Recipe, config: Config, mesh: Mapping[str, int], accumulated: int, each: int
) -> tuple[Part, ...]:
    """Parts, of weights that add up to 0, to add to a compiled step whose loss is "whole".

    Args:
        recipe: the row.
        config: its model; of a mixture, a dense one with the same ends.
        mesh: ranks by axis.
        accumulated: batches of a step.
        each: sequences of one of them per data-parallel rank.
    """
    system, accelerator = first(SYSTEMS, recipe.accelerator)

    def case(layers: int, compiled: bool) -> Case:
        words = [first(CHECKPOINTS, recipe.remat), "compile" if compiled else ""]
        loss = "whole" if compiled else config.loss
        made = torch_case(
            as_run(recipe, words, accumulated, each), replace(config, layers=layers, loss=loss),
            mesh, system, accelerator,
        )  # fmt: skip
        assert isinstance(made, Case)
        return made

    return tuple(
        Part(sign * weight, case(blocks, compiled))
        for compiled, sign in ((False, 1.0), (True, -1.0))
        for blocks, weight in _NONE
    )
