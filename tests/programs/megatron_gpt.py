"""Megatron-Core's GPT in any of its parallelisms, after the package's own quick start."""

import argparse
import os
import sys
from functools import partial

import torch
import torch.distributed as dist

try:
    import transformer_engine.pytorch  # noqa: F401
except Exception:  # its libraries are not everywhere; Megatron's own layers do the same
    sys.modules["transformer_engine"] = None

from megatron.core import parallel_state
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
from megatron.core.distributed.finalize_model_grads import finalize_model_grads
from megatron.core.models.gpt.gpt_layer_specs import (
    get_gpt_layer_local_spec,
    get_gpt_layer_with_transformer_engine_spec,
)
from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
from megatron.core.pipeline_parallel.schedules import get_forward_backward_func
from megatron.core.tensor_parallel.random import model_parallel_cuda_manual_seed
from megatron.core.transformer.moe import moe_utils
from megatron.core.transformer.moe.router import TopKRouter
from megatron.core.transformer.transformer_config import TransformerConfig
from torch.utils.data import DataLoader, Dataset

if not moe_utils.HAVE_TE:  # release 0.16.1 asks for this without having it
    moe_utils.te_general_gemm = None

LENGTH, VOCABULARY = 32, 128


class Tokens(Dataset):
    def __len__(self):
        return 256

    def __getitem__(self, at):
        return torch.randint(
            0, VOCABULARY, (LENGTH + 1,), generator=torch.Generator().manual_seed(at)
        )


def forward_step(iterator, model):
    tokens = next(iterator).to("cuda")
    mask = torch.ones(1, 1, LENGTH, LENGTH, device="cuda").tril() < 0.5
    positions = torch.arange(LENGTH, device="cuda").expand(len(tokens), -1)
    output = model(tokens[:, :-1], positions, mask, labels=tokens[:, 1:])
    return output, lambda losses: (losses.mean(), {"loss": losses.mean().detach()})


def spread_evenly(router):
    """Tokens choose experts in turn, whatever they are, so that each is chosen as often."""
    gating, each, experts = router.gating, router.config.moe_router_topk, router.num_experts

    def even(tokens):
        logits = gating(tokens)
        numbers = torch.arange(logits[..., 0].numel(), device=logits.device).view(-1, 1)
        wanted = (torch.arange(experts, device=logits.device) - numbers * each) % experts
        return logits * 0 - wanted.view(logits.shape)

    router.gating = even


def spec_of(args):
    if args.transformer_engine and sys.modules["transformer_engine"]:
        return get_gpt_layer_with_transformer_engine_spec(num_experts=args.experts)
    return get_gpt_layer_local_spec(num_experts=args.experts)


def build(args, config):
    virtual = args.virtual or 1
    chunks = []
    for at in range(virtual):
        stage = {"vp_stage": at} if args.virtual else {}
        first = parallel_state.is_pipeline_first_stage(ignore_virtual=False, **stage)
        last = parallel_state.is_pipeline_last_stage(ignore_virtual=False, **stage)
        model = GPTModel(
            config, spec_of(args), VOCABULARY, LENGTH,
            pre_process=first, post_process=last, **stage,
        ).to("cuda")  # fmt: skip
        for part in model.modules():
            if isinstance(part, TopKRouter):
                spread_evenly(part)
        ddp = DistributedDataParallelConfig(
            use_distributed_optimizer=args.distributed_optimizer,
            overlap_grad_reduce=args.overlap, bucket_size=20_000 if args.overlap else None,
        )  # fmt: skip
        chunks.append(DistributedDataParallel(config, ddp, model))
    return chunks


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tp", type=int, default=1)
    parser.add_argument("--pp", type=int, default=1)
    parser.add_argument("--ep", type=int, default=1)
    parser.add_argument("--virtual", type=int)
    parser.add_argument("--experts", type=int)
    parser.add_argument("--transformer-engine", action="store_true")
    parser.add_argument("--dispatcher", default="alltoall")
    parser.add_argument("--microbatches", type=int, default=4)
    parser.add_argument("--distributed-optimizer", action="store_true")
    parser.add_argument("--overlap", action="store_true")
    parser.add_argument("--steps", type=int, default=5)
    args = parser.parse_args()

    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group(
        "nccl", rank=int(os.environ["RANK"]), world_size=int(os.environ["WORLD_SIZE"])
    )
    parallel_state.initialize_model_parallel(
        args.tp, args.pp, virtual_pipeline_model_parallel_size=args.virtual,
        expert_model_parallel_size=args.ep,
    )  # fmt: skip
    model_parallel_cuda_manual_seed(123)
    config = TransformerConfig(
        num_layers=4, hidden_size=64, num_attention_heads=4, pipeline_dtype=torch.float32,
        tensor_model_parallel_size=args.tp, pipeline_model_parallel_size=args.pp,
        virtual_pipeline_model_parallel_size=args.virtual, expert_model_parallel_size=args.ep,
        num_moe_experts=args.experts,
        moe_token_dispatcher_type=args.dispatcher, add_bias_linear=args.experts is None,
    )  # fmt: skip
    config.finalize_model_grads_func = finalize_model_grads
    chunks = build(args, config)
    optimizer = get_megatron_optimizer(
        OptimizerConfig(lr=1e-3, use_distributed_optimizer=args.distributed_optimizer), chunks
    )
    loaders = [iter(DataLoader(Tokens(), batch_size=2)) for _ in chunks]
    forward_backward = get_forward_backward_func()
    for step in range(args.steps):
        for chunk in chunks:
            chunk.zero_grad_buffer()
        optimizer.zero_grad()
        losses = forward_backward(
            forward_step_func=partial(forward_step), model=chunks,
            data_iterator=loaders if args.virtual else loaders[0],
            num_microbatches=args.microbatches, seq_length=LENGTH, micro_batch_size=2,
            decoder_seq_length=LENGTH, forward_only=False,
        )  # fmt: skip
        _, norm, _ = optimizer.step()
        if losses:
            print(f"step {step}: {losses[-1]['loss'].item():.4f}, gradient norm {norm:.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
