"""Steps on gloo ranks: models of PyTorch, small."""

from __future__ import annotations

from dataclasses import replace

from flint.models.torch import llama3, resnet

ddp_resnet = resnet.train_tiny

_TINY = replace(llama3.TINY, layers=2)
fsdp_tp = llama3.training(_TINY, mesh=(2, 2))
fsdp = llama3.training(_TINY, mesh=(4,), axes=("dp",))
hsdp = llama3.training(_TINY, mesh=(2, 2), axes=("dp_replicate", "dp"))
tp = llama3.training(_TINY, mesh=(2,), axes=("tp",))
