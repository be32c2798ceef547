"""Which device is current, and threads beside an op."""

from __future__ import annotations

import re

import pytest


def test_a_device_may_be_the_current_one_for_a_while(said):
    """The object is accepted where a number is, as by PyTorch."""
    assert said("""
        import os
        own = torch.cuda.device(int(os.environ["LOCAL_RANK"]))
        with own:
            within = torch.cuda.current_device()
        after = torch.cuda.current_device()
        torch.cuda.set_device(own)
        with torch.cuda.device(None):
            kept = torch.cuda.current_device()
        say(own.idx, within, after, kept, isinstance(own, torch.cuda.device))
    """) == [1, 1, 0, 1, True]


def test_a_thread_may_compute_while_another_one_gets_an_ops_shapes(said):
    """A checkpoint's thread copies weights; PyTorch's mode has one answer for all threads."""
    assert said("""
        import threading
        from flint.frontends.torch.context import capture
        x, found = torch.ones(3, device="cuda"), []
        mode = capture().fake_mode
        mode.in_kernel_invocation = True  # as within an op of this thread
        thread = threading.Thread(target=lambda: found.append(list((x + 1).shape)))
        thread.start()
        thread.join()
        still = mode.in_kernel_invocation
        mode.in_kernel_invocation = False
        say(found, still, list((x + 1).shape))
    """) == [[[3]], True, [3]]


#: Tensors on two devices of one process, by each way to put them there.
WAYS = (
    'torch.ones(3).to("cuda:0"), torch.ones(3).to("cuda:1")',
    "torch.ones(3).cuda(0), torch.ones(3).cuda(1)",
    "torch.ones(3).to(0), torch.ones(3).to(device=1)",
    'torch.ones(3, device="cuda:0"), torch.ones(3, device=torch.device("cuda", 1))',
    'torch.nn.Linear(3, 3).to("cuda:0"), torch.nn.Linear(3, 3).to(torch.device("cuda:1"))',
    'torch.nn.Linear(3, 3).to("cuda:0"), torch.nn.Linear(3, 3).to("cuda:1")',
)
#: One device, also where others are named.
ONE = (
    'torch.ones(3).to("cuda:2"), torch.ones(3, device="cuda").cuda(2)',
    '[torch.device(f"cuda:{n}") for n in range(4)], torch.ones(3).to("cuda:1")',
    'torch.nn.Linear(3, 3).to(torch.device("cuda:1")), torch.ones(3).to("cuda:1").to("cpu")',
    'torch.nn.Linear(3, 3).to("cuda"), torch.nn.Linear(3, 3).to("cuda:1")',  # the current one
)
NOTED = """
from flint.launching.notes import noted
{}
say([text for text in noted if text.startswith("tensors are put on cuda:")])
"""


@pytest.mark.parametrize("way", WAYS)
def test_tensors_on_two_devices_of_one_process_are_a_warning_with_both_lines(way, said):
    [[text]] = said(NOTED.format(way))
    assert re.match(
        r"tensors are put on cuda:0 at \S*train.py:5 and on cuda:1 at \S*train.py:5 by", text
    )


@pytest.mark.parametrize("way", ONE)
def test_tensors_on_one_device_are_none(way, said):
    assert said(NOTED.format(way)) == [[]]
