"""Python's stack in a profile: which line and layer a kernel is of."""

from __future__ import annotations

from pathlib import Path

import pytest

from flint.explaining.explaining import explain
from flint.post_execution.converting import convert_traces
from flint.post_execution.source_lines import names_line
from tests.post_execution.traces import Profile

PROFILES = Path(__file__).parents[1] / "data" / "profiles"


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("train.py(31): step", True),
        ("/home/me/project/model.py(7): forward", True),
        ("transformers/models/qwen2/modeling_qwen2.py(56): forward", True),
        ("/usr/lib/python3.10/site-packages/transformers/trainer.py(9): step", True),
        ("nn.Module: Linear_1", True),
        ("torch/nn/modules/linear.py(130): forward", False),
        ("/usr/lib/python3.10/site-packages/torch/nn/functional.py(3): linear", False),
        ("/usr/lib/python3.10/contextlib.py(75): inner", False),
        ("threading.py(1002): _bootstrap", False),
        ("<string>(2): <module>", False),
        ("<built-in function linear>", False),
    ],
)
def test_functions_of_pytorch_and_python_are_not_places(name, told):
    assert names_line(name) is told


def called(profile, name, ts, dur, tid=1):
    profile.span(name, ts, dur, tid)
    profile.events[-1]["cat"] = "python_function"


def test_a_kernel_is_of_the_innermost_function_and_of_all_modules_around(tmp_path):
    """train.py(10) calls Net, whose forward (net.py, 5) calls Linear; then train.py launches one
    itself; a kernel of the backward pass comes from a thread without Python.
    """
    profile = Profile(0, 1)
    called(profile, "train.py(10): step", 0, 200)
    called(profile, "nn.Module: Net_0", 5, 60)
    called(profile, "net.py(5): forward", 6, 58)
    called(profile, "nn.Module: Linear_1", 8, 20)
    called(profile, "torch/nn/modules/linear.py(130): forward", 9, 18)
    profile.work(10, 20, 5)
    profile.work(40, 50, 5)
    profile.work(100, 110, 5)
    profile.work(120, 130, 5, tid=2)
    workload = convert_traces([profile.write(tmp_path / "rank0.json")])
    sources = [node.source for node in workload.programs[0].graph]
    assert [(s.file, s.line, s.layer) for s in sources] == [
        ("net.py", 5, "Net_0/Linear_1"), ("net.py", 5, "Net_0"), ("train.py", 10, ""), ("", 0, ""),
    ]  # fmt: skip


def test_a_published_profile_names_the_lines_of_its_models_file():
    """Inference of a BERT of HuggingFace: all of its products are in that file, or in the layers
    that it calls from there.
    """
    explanation = explain(convert_traces([PROFILES / "bert_small_h100.json.gz"]))
    sources = [item.source for cause in explanation.causes for item in cause.sources]
    assert any("modeling_bert.py:" in source and "BertLayer_*" in source for source in sources)
