"""What ``torch.cuda`` says of memory, against counts by hand.

PyTorch's caching allocator gives blocks of multiples of 512 bytes (``kMinBlockSize``).
"""

from __future__ import annotations

import textwrap

import pytest

pytest.importorskip("torch")

from tests.programs.comparing import captured

PROGRAM = """
    import torch
    cuda, KiB = torch.cuda, 1024
    def check(*found):
        assert found[: len(found) // 2] == found[len(found) // 2 :], found
    check(cuda.memory_allocated(), 0)
    weight = torch.zeros(256, 256, device="cuda")
    view, host, one = weight.t(), torch.zeros(256, 256), torch.zeros(1, device="cuda")
    check(cuda.memory_allocated(), 256 * KiB + 512)  # 256 x 256 x 4 bytes, and a block for 4 bytes
    total = weight + 1
    check(cuda.memory_allocated(), 512 * KiB + 512)
    del total
    check(cuda.memory_allocated(), cuda.max_memory_allocated(), 256 * KiB + 512, 512 * KiB + 512)
    cuda.reset_peak_memory_stats()
    check(cuda.max_memory_allocated(), 256 * KiB + 512)
    weight.untyped_storage().resize_(0)
    check(cuda.memory_allocated(), cuda.memory_stats()["allocation.all.current"], 512, 1)
    free, all_of_it = cuda.mem_get_info()
    check(all_of_it - free, cuda.memory_reserved(), 2 * KiB * KiB, 2 * KiB * KiB)
    del weight, view, one
    cuda.empty_cache()
    check(cuda.memory_allocated(), cuda.memory_reserved(), 0, 0)
    model = torch.nn.Linear(256, 256, bias=False, device="cuda")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    rows = torch.ones(256, 256, device="cuda")
    for step in range(3):
        model(rows).sum().backward()
        optimizer.step()
        # The weight, its gradient and momentum, and the rows.
        check(cuda.memory_allocated(), 4 * 256 * KiB)
"""


def test_statistics_count_what_the_program_holds(tmp_path):
    (tmp_path / "train.py").write_text(textwrap.dedent(PROGRAM))
    # Forward and for its weights: 2 x 2 FLOPs x 256 rows x 256 x 256.
    assert [item["flops"] for item in captured(tmp_path, 1, "train.py")] == [2 * 2 * 256**3]
