"""The steps that are compared, by name."""

from __future__ import annotations

import functools
from dataclasses import replace

from flint.models.torch import llama3, moe, moe_sizes
from flint.models.torch.moe_experts import Experts
from tests.frontends.torch.real import further, steps
from tests.frontends.torch.real.processes import Case

ONE, TWO, FOUR, SQUARE = (1,), (2,), (4,), (2, 2)
GPU = ("attention",)


def _pipeline(kind, ranks, per_rank=1):
    return Case(
        (ranks,), ("pp",), steps.stages(kind, 4, per_rank), steps.pipeline_step, tuple(range(ranks))
    )


def _llama(shape, axes, ranks=(0, 1, 2, 3), **settings):
    config = replace(llama3.TINY, **{"layers": 2, **settings})
    setup, step = llama3.build, llama3.step
    if "pp" in axes:
        setup, step = llama3.build_pipeline, llama3.pipeline_step
    setup = functools.partial(setup, config)
    return Case(shape, axes, setup, step, ranks, kernels=("attention", "norm"))


def _mixture(name, shape, axes, ranks, **settings):
    """A tiny model of a published kind whose router sends tokens to all experts in turn."""
    config = replace(moe_sizes.tiny(name), forced=True, **settings)
    build, step = (moe.build_pipeline, moe.pipeline_step) if "pp" in axes else (moe.build, moe.step)

    def setup(mesh):
        arguments = build(config, mesh)
        for part in arguments[0].modules():
            if isinstance(part, Experts):
                part.set_force_sum_reduction_for_comms(True)  # gloo scales nothing
        return arguments

    return Case(shape, axes, setup, step, ranks, kernels=("attention", "norm"))


CASES = {
    "plain": Case(ONE, ("dp",), steps.plain(), steps.step, (0,)),
    "clip": Case(ONE, ("dp",), steps.plain(), steps.clipped_step, (0,)),
    "layer norm": Case(ONE, ("dp",), steps.plain(steps.layer_norm), steps.step, (0,)),
    "fused RMS norm": Case(
        ONE, ("dp",), steps.plain(steps.rms_norm), steps.step, (0,), kernels=("norm",)
    ),
    "SGD, tensor by tensor": Case(ONE, ("dp",), steps.single_tensor, steps.step, (0,)),
    "autocast": Case(ONE, ("dp",), steps.plain(), steps.autocast_step, (0,), kernels=GPU),
    "assignments": Case(ONE, ("dp",), steps.numbers, steps.assigning_step, (0,)),
    "ResNet": Case(ONE, ("dp",), steps.resnet, steps.resnet_step, (0,)),
    "DDP": Case(FOUR, ("dp",), steps.ddp, steps.step, (0, 3), warm_up=2),
    "DDP ResNet": Case(TWO, ("dp",), steps.ddp_resnet, steps.resnet_step, (0, 1), warm_up=2),
    "FSDP2": Case(FOUR, ("dp",), steps.sharded(), steps.step, (0, 3)),
    "FSDP2, bf16, clip": Case(
        FOUR, ("dp",), steps.sharded(mixed=True), steps.clipped_step, (0, 2), kernels=GPU
    ),
    "FSDP2, kept": Case(FOUR, ("dp",), steps.sharded(reshard=False), steps.step, (1,)),
    "FSDP2, checkpointed": Case(
        FOUR, ("dp",), steps.sharded(checkpointed=True, mixed=True), steps.step, (0, 3), kernels=GPU
    ),
    "HSDP": Case(
        SQUARE,
        ("replicate", "shard"),
        steps.sharded(mixed=True),
        steps.clipped_step,
        (0, 3),
        kernels=GPU,
    ),
    "TP + SP": Case(TWO, ("tp",), steps.tensor_parallel_only, steps.step, (0, 1)),
    "FSDP2 x TP": Case(
        SQUARE,
        ("dp", "tp"),
        steps.sharded(mixed=True),
        steps.clipped_step,
        (0, 1, 2, 3),
        kernels=GPU,
    ),
    "GPipe, 2 stages": _pipeline("GPipe", 2),
    "1F1B, 2 stages": _pipeline("1F1B", 2),
    "interleaved, 2 ranks of 2 stages": _pipeline("Interleaved1F1B", 2, 2),
    "GPipe, 4 stages": _pipeline("GPipe", 4),
    "1F1B, 4 stages": _pipeline("1F1B", 4),
    "interleaved, 4 ranks of 2 stages": _pipeline("Interleaved1F1B", 4, 2),
    "PP x FSDP": Case(
        SQUARE, ("pp", "dp"), steps.stages("1F1B", 4), steps.pipeline_step, (0, 1, 2, 3)
    ),
    "PP x TP": Case(
        SQUARE, ("pp", "tp"), steps.stages("1F1B", 4), steps.pipeline_step, (0, 1, 2, 3)
    ),
    "context parallel": Case(
        TWO, ("cp",), steps.context_parallel_setup, steps.context_parallel_step, (0, 1), kernels=GPU
    ),
    "exchanges": Case(FOUR, ("x",), steps.exchange_setup, steps.exchange_step, (0, 1, 2, 3)),
    "HSDP, accumulating": Case(
        SQUARE,
        ("replicate", "shard"),
        further.replicas_and_shards,
        further.accumulating_step,
        (0, 3),
    ),
    "FSDP2, kept by two": Case(FOUR, ("dp",), further.kept_by_two, further.square_step, (0, 3)),
    "LoRA, FSDP2": Case(FOUR, ("dp",), further.low_rank, further.square_step, (0, 3)),
    "ZeRO-1": Case(TWO, ("dp",), further.sharded_optimizer, further.square_step, (0, 1), warm_up=2),
    "parallel loss": Case(TWO, ("tp",), further.parallel_loss, further.parallel_loss_step, (0, 1)),
    "graph network": Case(ONE, ("dp",), further.graph, further.graph_step, (0,)),
    "state space": Case(ONE, ("dp",), further.scan, further.square_step, (0,)),
    "GAN": Case(ONE, ("dp",), further.adversaries, further.adversaries_step, (0,)),
    "gradients per sample": Case(ONE, ("dp",), further.samples, further.samples_step, (0,)),
    "forward derivatives": Case(ONE, ("dp",), further.tangents, further.tangents_step, (0,)),
    "Llama, FSDP2": _llama(FOUR, ("dp",), (3,)),
    "Llama, HSDP": _llama(SQUARE, ("dp_replicate", "dp"), (0, 3)),
    "Llama, FSDP2 x TP, checkpointed": _llama(SQUARE, ("dp", "tp"), checkpoint=True),
    "Llama, FSDP2 x CP": _llama(SQUARE, ("dp", "cp")),
    "Llama, CP x TP": _llama(SQUARE, ("cp", "tp")),
    "Llama, PP x FSDP2": _llama(SQUARE, ("pp", "dp"), schedule="GPipe"),
    "Llama, PP x TP, interleaved": _llama(
        SQUARE, ("pp", "tp"), schedule="Interleaved1F1B", stages=2, layers=4
    ),
    "Llama, PP x CP": _llama(SQUARE, ("pp", "cp")),
    "Llama, ends tied, fused loss": _llama(
        TWO, ("dp",), (0,), ends="together", tied=True, loss="fused"
    ),
    "Llama, ZeRO-2, loss in chunks": _llama(
        TWO, ("dp",), (0, 1), keep="weights", accumulation=2, loss="chunked"
    ),
}

#: Steps that read on the host how many tokens go where: on the CPU no op tells of that.
MIXTURES = {
    "Qwen3, FSDP2 x EP, checkpointed": _mixture(
        "qwen3-30b", SQUARE, ("dp", "ep"), (0, 3), checkpoint=True
    ),
    "Qwen3, dropped": _mixture("qwen3-30b", SQUARE, ("dp", "ep"), (0,), dispatch="dropped"),
    "Qwen3, once": _mixture("qwen3-30b", (1, 4), ("dp", "ep"), (0,), dispatch="once"),
    "Llama 4, PP x EP": _mixture("llama4-maverick", (2, 1, 2), ("pp", "dp", "ep"), (0, 3)),
}
