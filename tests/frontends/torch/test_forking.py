"""Processes whose forks can run no backward pass."""

from __future__ import annotations

import ctypes
import sys
import threading

import pytest

torch = pytest.importorskip("torch")
from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402

from flint.errors import UsageError  # noqa: E402
from flint.frontends.torch.forking import check_forks  # noqa: E402
from tests.support.children import answer_of  # noqa: E402

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="threads have names on Linux only")

_SET_NAME = 15  # prctl's PR_SET_NAME


@pytest.mark.parametrize("name", ["pt_autograd_0", "pt_something"])
def test_a_thread_of_autograd_is_noticed(name):
    named, over = threading.Event(), threading.Event()

    def wait():
        ctypes.CDLL(None).prctl(_SET_NAME, name.encode(), 0, 0, 0)
        named.set()
        over.wait()

    thread = threading.Thread(target=wait)
    thread.start()
    named.wait()
    try:
        if name == "pt_something":
            check_forks()
        else:
            with pytest.raises(UsageError, match="in a process of its own"):
                check_forks()
    finally:
        over.set()
        thread.join()


@pytest.mark.skipif(torch.version.cuda is None, reason="a PyTorch for CPUs has no such threads")
def test_a_backward_pass_of_a_pytorch_for_cuda_is_noticed(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import json, torch\n"
        f"from {FakeTensorMode.__module__} import FakeTensorMode\n"
        "from flint.frontends.torch.forking import check_forks\n"
        "with FakeTensorMode():\n    torch.empty(4)\n"
        "check_forks()\n"
        "torch.ones(2, requires_grad=True).sum().backward()\n"
        "try:\n    check_forks()\nexcept Exception as error:\n    print(json.dumps(str(error)))\n"
    )
    assert "in a process of its own" in answer_of(script)
