"""Programs that ask which CUDA is installed."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

#: As DeepSpeed's builder of kernels asks.
ASK = """
import os, subprocess
{before}
from torch.utils.cpp_extension import CUDA_HOME
def release():
    if CUDA_HOME is None:
        return None
    words = subprocess.check_output([CUDA_HOME + "/bin/nvcc", "-V"], universal_newlines=True)
    words = words.split()
    return words[words.index("release") + 1].rstrip(",")
say(CUDA_HOME, release(), torch.version.cuda)
"""


def test_where_the_user_says_that_cuda_is_its_compiler_has_the_release_of_pytorch(said):
    home, release, torchs = said(ASK.format(before="os.environ['CUDA_HOME'] = '/nowhere/cuda'"))
    assert home == "/nowhere/cuda"
    assert release == torchs


def test_otherwise_there_is_no_compiler(said, monkeypatch):
    monkeypatch.delenv("CUDA_HOME", raising=False)
    monkeypatch.delenv("CUDA_PATH", raising=False)
    assert said(ASK.format(before=""))[:2] == [None, None]
