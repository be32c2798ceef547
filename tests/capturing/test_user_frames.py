"""The line that an error names, where packages lie in unusual folders."""

from __future__ import annotations

import importlib
import traceback

import pytest

torch = pytest.importorskip("torch")

from flint.capturing import user_frames  # noqa: E402

LIBRARY = """
import torch

class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        raise ValueError("the library's own")
"""
PROGRAM = """
import torch
from layers_of_a_library import Doubled

def step():
    x = torch.ones(2, requires_grad=True)
    Doubled.apply(x).sum().backward()
"""


def test_a_framework_outside_the_packages_folder_is_not_what_called_a_library(
    tmp_path, monkeypatch
):
    installed = tmp_path / "site-packages"
    installed.mkdir()
    (installed / "layers_of_a_library.py").write_text(LIBRARY)
    (tmp_path / "own_steps.py").write_text(PROGRAM)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(user_frames, "_INSTALLED", (f"{installed}/",))  # PyTorch lies elsewhere
    for folder in (installed, tmp_path):
        monkeypatch.syspath_prepend(str(folder))
    with pytest.raises(ValueError, match="the library's own") as error:
        importlib.import_module("own_steps").step()
    where = user_frames.user_frame(error.value)
    assert where == "layers_of_a_library.py:11, called at own_steps.py:7"


def test_the_error_of_another_process_is_named_without_its_frames():
    """Workers put their whole traceback into the text of the error that they are reported by."""
    with pytest.raises(ZeroDivisionError) as raised:
        _ = 1 // 0
    frames = "".join(traceback.format_exception(raised.value))
    words = user_frames.one_line(
        RuntimeError(f"a worker failed: {frames}\n\nThe above exception was ...")
    )
    assert words == "a worker failed: ZeroDivisionError: integer division or modulo by zero"
