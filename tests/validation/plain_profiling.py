"""Child process: a step on gloo ranks under ``torch.profiler``, as its first example has it.

    python plain_profiling.py FOLDER MODULE:NAME

Leaves FOLDER/rank<r>.json of three steps, the first of which warms up.
"""

from __future__ import annotations

import sys

from torch.profiler import profile

from tests.validation import torch_profiling


def observed(step, rank, folder):
    with profile(record_shapes=True) as profiler:
        for _ in range(3):
            step()
            profiler.step()
    profiler.export_chrome_trace(f"{folder}/rank{rank}.json")


if __name__ == "__main__":
    torch_profiling.main(*sys.argv[1:], observed)
