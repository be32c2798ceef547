"""DeepSpeed: an engine with a configuration, whose ZeRO stage is an argument."""

import argparse

import deepspeed
import torch
from transformer import Transformer

parser = argparse.ArgumentParser()
parser.add_argument("--stage", type=int, default=1)
parser.add_argument("--bf16", action="store_true")
parser.add_argument("--accumulate", type=int, default=1)
parser.add_argument("--steps", type=int, default=5)
parser.add_argument("--groups", type=int, default=1)  # of parameters, each stepped by itself
parser.add_argument("--local_rank", type=int, default=-1)
args = parser.parse_args()

config = {
    "train_micro_batch_size_per_gpu": 4,
    "gradient_accumulation_steps": args.accumulate,
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "torch_adam": True}},
    "gradient_clipping": 1.0,
    "bf16": {"enabled": args.bf16},
    "zero_optimization": {"stage": args.stage, "reduce_bucket_size": 20_000},
}
torch.manual_seed(0)
deepspeed.init_distributed()
with deepspeed.zero.Init(config_dict_or_path=config, enabled=args.stage == 3):
    model = Transformer()
tokens = torch.utils.data.TensorDataset(torch.randint(0, 96, (256, 17)))
parameters = list(model.parameters())
groups = [{"params": parameters[at :: args.groups]} for at in range(args.groups)]
engine, _, loader, _ = deepspeed.initialize(
    model=model, model_parameters=groups, config=config, training_data=tokens
)
done = 0
for (batch,) in loader:
    batch = batch.to(engine.device)
    logits = engine(batch[:, :-1])
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
    engine.backward(loss)
    engine.step()
    if engine.is_gradient_accumulation_boundary():
        print(f"step {done}: {loss.item():.4f}")
        done += 1
    if done == args.steps:
        break
torch.distributed.destroy_process_group()
