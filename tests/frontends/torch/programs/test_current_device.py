"""Which device is current, and threads beside an op."""

from __future__ import annotations


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
