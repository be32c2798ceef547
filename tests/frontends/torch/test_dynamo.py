"""Dynamo is imported where something needs it, and not by optimizers or fake tensors alone."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")
from tests.support.children import answer_of

_SCRIPT = """
import json, sys
import torch, torch.distributed as dist
from flint.frontends.torch.shims import dynamo
from torch._subclasses.fake_tensor import FakeTensorMode

real = torch.tensor([2.0, 3.0])
kept = torch.ones(3, 2).requires_grad_()[1:, :1]  # a view, with a gradient to come
dynamo.apply()
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
model = torch.nn.Linear(4, 4)
torch.nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.AdamW(model.parameters())
model(torch.ones(2, 4)).sum().backward()
optimizer.step()
optimizer.zero_grad()
torch._dynamo.config.cache_size_limit
with FakeTensorMode(allow_non_fake_inputs=True):
    scaled = torch.ones(2) * real
    sizes = [*scaled.shape, *(scaled[:1] + kept).shape]
before = "torch._dynamo.convert_frame" in sys.modules

from torch._dynamo.source import AttrSource, ConstantSource

named = AttrSource(ConstantSource("x"), "_base").name

import torch._dynamo.utils as utils

one = utils is sys.modules["torch._dynamo.utils"] and utils is torch._dynamo.utils
same = torch._dynamo.config is sys.modules["torch._dynamo.config"]
compiled = torch.compile(lambda x: 2 * x + 1, backend="eager")(torch.arange(3.0))
traced = torch._dynamo.utils.counters["stats"]["calls_captured"]
print(json.dumps([before, sizes, named, one, same, compiled.tolist(), traced]))
"""


@pytest.mark.thorough
def test_optimizers_and_fake_tensors_do_not_import_it_and_who_asks_for_more_gets_it(tmp_path):
    """What is compiled afterwards has been traced: a product and a sum."""
    script = tmp_path / "script.py"
    script.write_text(_SCRIPT)
    before, sizes, named, one, same, compiled, traced = answer_of(script)
    assert not before
    assert sizes == [2, 2, 1]
    assert named == "x._base"
    assert one and same
    assert (compiled, traced) == ([1, 3, 5], 2)
