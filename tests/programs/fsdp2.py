"""FSDP2 as in PyTorch's example: meta device, fully_shard per layer, prefetching, clipping."""

import argparse
import os

import torch
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from transformer import Transformer


def main(args):
    rank = int(os.environ["LOCAL_RANK"])
    if torch.accelerator.is_available():
        device_type = torch.accelerator.current_accelerator()
        device = torch.device(f"{device_type}:{rank}")
        torch.accelerator.set_device_index(rank)
        print(f"running on rank {rank} on device {device}")
    else:
        device = torch.device("cpu")
    backend = torch.distributed.get_default_backend_for_device(device)
    torch.distributed.init_process_group(
        backend=backend, device_id=device if device.type != "cpu" else None
    )
    torch.manual_seed(0)
    with torch.device("meta"):
        model = Transformer(layers=args.layers)
    kwargs = {}
    if args.mixed_precision:
        kwargs["mp_policy"] = MixedPrecisionPolicy(
            param_dtype=torch.bfloat16, reduce_dtype=torch.float32
        )
    for layer in model.layers:
        fully_shard(layer, **kwargs)
    fully_shard(model, **kwargs)
    for at, layer in enumerate(model.layers[:-1]):
        layer.set_modules_to_forward_prefetch([model.layers[at + 1]])
    model.to_empty(device=device)
    for module in model.modules():
        if hasattr(module, "reset_parameters"):
            module.reset_parameters()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(10):
        model.unshard()
        x = torch.randint(0, 96, (2, 16), device=device)
        loss = model(x).sum()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
        optimizer.step()
        optimizer.zero_grad()
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--mixed-precision", action="store_true")
    main(parser.parse_args())
