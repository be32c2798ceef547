"""Steps on gloo ranks: models of PyTorch, small, parallel in every way; by name in ``STEPS``."""

from __future__ import annotations

import functools
from dataclasses import replace

import torch
from torch import nn

import flint
from flint.models.torch import llama3, moe, resnet
from tests.frontends.torch.real import steps
from tests.validation import published

_TINY = replace(llama3.TINY, layers=2)


def _llama(shape, axes, **settings):
    return llama3.training(replace(_TINY, **settings), mesh=shape, axes=axes)


def _captured(step, setup, shape, axes):
    return flint.capture(step, mesh=shape, axes=axes, setup=setup, framework="torch")


def _pipeline(kind, shape, axes=("pp",), per_rank=1):
    return _captured(steps.pipeline_step, steps.stages(kind, 4, per_rank), shape, axes)


def _plain(shape, axes):
    """Without sequence parallelism, every parameter sharded by itself."""
    return _captured(published.step, functools.partial(published.build, _TINY), shape, axes)


def _balanced(mesh):
    """A mixture whose router sends equally many tokens to every expert, as captures assume."""
    arguments = moe.build(moe.TINY, mesh)
    for block in arguments[0].layers.values():
        block.moe.router.register_forward_hook(_in_turn)
        block.moe.experts.set_force_sum_reduction_for_comms(True)  # gloo scales nothing
    return arguments


def _in_turn(router, _, scores):
    """Scores (tokens, experts) of which token i prefers the experts 2 i and 2 i + 1, modulo all."""
    chosen = moe.TINY.model.experts.chosen
    token = torch.arange(scores.shape[0], device=scores.device)[:, None] * chosen
    expert = torch.arange(scores.shape[1], device=scores.device)[None]
    wanted = (expert - token) % scores.shape[1] < chosen
    return scores * 0.01 + wanted.to(scores.dtype)


def _accumulated(model, optimizer, tokens, labels):
    """Two microbatches whose gradients are reduced once."""
    model.set_requires_gradient_sync(False)
    steps.loss_of(model(tokens), labels).backward()
    model.set_requires_gradient_sync(True)
    steps.step(model, optimizer, tokens, labels)


def _accumulated_ddp(model, optimizer, tokens, labels):
    with model.no_sync():
        steps.loss_of(model(tokens), labels).backward()
    steps.step(model, optimizer, tokens, labels)


def _without_optimizer(model, optimizer, tokens, labels):
    steps.loss_of(model(tokens), labels).backward()
    optimizer.zero_grad()


def _one_by_one(mesh):
    """DDP, and an optimizer that takes parameters one by one."""
    model, _, *batch = steps.ddp(mesh)
    return model, torch.optim.SGD(model.parameters(), lr=0.1, foreach=False), *batch


def _fused(mesh):
    model, _, *batch = steps.sharded()(mesh)
    return model, torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True), *batch


def perceptrons(mesh, act=nn.GELU, dropout=0.1, optimizer=torch.optim.AdamW, count=16):
    """DDP over layers with dropout; two parameters each, which is more than a profiler lists."""
    layers = [nn.Sequential(nn.Linear(8, 8), act(), nn.Dropout(dropout)) for _ in range(count)]
    if not dropout:
        layers = [layer[:2] for layer in layers]
    model = nn.parallel.DistributedDataParallel(nn.Sequential(*layers).to(mesh.device_type))
    x = torch.ones(4, 8, device=mesh.device_type)
    return model, optimizer(model.parameters(), lr=0.1, foreach=True), x


def _squared(model, optimizer, x):
    model(x).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()


def dropped(**changes):
    return _captured(_squared, functools.partial(perceptrons, **changes), (2,), ("dp",))


#: Those that need a GPU's kernels in real runs: ring attention knows no other.
ATTENTION = {"cp", "fsdp_cp", "pp_cp"}

STEPS = {
    "ddp_resnet": resnet.train_tiny,
    "ddp_resnet_autocast": resnet.training(replace(resnet.TINY, autocast=torch.bfloat16)),
    "ddp_buckets": _captured(steps.step, steps.ddp, (4,), ("dp",)),
    "ddp_dropout": dropped(),
    "ddp_accumulated": _captured(_accumulated_ddp, steps.ddp, (4,), ("dp",)),
    "ddp_one_by_one": _captured(steps.step, _one_by_one, (4,), ("dp",)),
    "fsdp": _llama((4,), ("dp",)),
    "fsdp_float32": _llama((4,), ("dp",), dtype=torch.float32),
    "fsdp_kept": _captured(
        steps.clipped_step, steps.sharded(mixed=True, reshard=False), (4,), ("dp",)
    ),
    "fsdp_accumulated": _captured(_accumulated, steps.sharded(), (4,), ("dp",)),
    "fsdp_fused_adamw": _captured(steps.step, _fused, (4,), ("dp",)),
    "fsdp_checkpointed": _captured(
        steps.step, steps.sharded(checkpointed=True, mixed=True), (4,), ("dp",)
    ),
    "hsdp": _llama((2, 2), ("dp_replicate", "dp")),
    "tp": _llama((2,), ("tp",)),
    "tp_plain": _plain((2,), ("tp",)),
    "fsdp_tp": _llama((2, 2), ("dp", "tp")),
    "fsdp_tp_plain": _plain((2, 2), ("dp", "tp")),
    "fsdp_tp_checkpointed": _llama((2, 2), ("dp", "tp"), checkpoint=True),
    "hsdp_tp": _llama((2, 1, 2), ("dp_replicate", "dp", "tp")),
    "cp": _llama((2,), ("cp",)),
    "fsdp_cp": _llama((2, 2), ("dp", "cp")),
    "gpipe": _pipeline("GPipe", (4,)),
    "1f1b": _pipeline("1F1B", (4,)),
    "interleaved": _pipeline("Interleaved1F1B", (2,), per_rank=2),
    "pp_fsdp": _llama((2, 2), ("pp", "dp"), schedule="1F1B"),
    "pp_tp": _llama((2, 2), ("pp", "tp"), schedule="Interleaved1F1B", stages=2, layers=4),
    "pp_cp": _llama((2, 2), ("pp", "cp")),
    "pp_fsdp_tp": _llama((2, 1, 2), ("pp", "dp", "tp"), schedule="GPipe"),
    "moe": _captured(moe.step, _balanced, (2, 2), ("dp", "ep")),
    "exchanges": _captured(steps.exchange_step, steps.exchange_setup, (4,), ("x",)),
}

#: What ``ddp_buckets`` is, but for its optimizer.
without_optimizer = _captured(_without_optimizer, steps.ddp, (4,), ("dp",))
