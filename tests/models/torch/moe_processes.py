"""Mixtures of published kinds on two real processes against their papers' formulas; see the tests.

python -m tests.models.torch.moe_processes FOLDER        # writes FOLDER/result.json
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.attention import flex_attention

from flint.models.torch.moe import loss_of
from flint.models.torch.moe_model import Mixture, Model
from flint.models.torch.moe_sizes import tiny
from tests.models import dense_mixtures

RANKS, SEQUENCES = 2, 2
#: One of each kind.
NAMES = (
    "mixtral-8x7b", "deepseek-v2", "deepseek-v2-lite", "deepseek-v3", "qwen3-30b", "gpt-oss-20b",
    "llama4-scout", "llama4-maverick",
)  # fmt: skip
WAYS = {
    "grouped": {},
    "loop": {"products": "loop"},
    "once": {"dispatch": "once"},
    "padded": {"dispatch": "padded"},
    "dropped": {"dispatch": "dropped"},
}
#: Tensors of the experts, of which a rank has its own.
OWN = ("gate", "up", "down", "gate_bias", "up_bias", "down_bias")


def config_of(name, way):
    config = replace(tiny(name), dtype=torch.float32, **WAYS[way])
    if way == "dropped":  # with a place for every token
        experts = config.model.experts
        experts = replace(experts, capacity_factor=experts.count / experts.chosen)
        config = replace(config, model=replace(config.model, experts=experts))
    return config


def drawn(model, ranks, generator):
    """Values of all parameters and corrections, those of all ranks' experts too."""
    found = {}
    tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    for name, item in tensors.items():
        if name.endswith(("rotary", "load")):
            continue
        shape = list(item.shape)
        if ".experts." in name:
            shape[0] *= ranks
        scale, mean = (0.3 if item.dim() > 1 else 0.1), float(name.endswith("norm.weight"))
        found[name] = mean + scale * torch.randn(shape, generator=generator)
    return found


def own(name, value, rank):
    return value.chunk(RANKS)[rank] if ".experts." in name else value


def tree_of(config, values):
    """Parameters as ``dense_mixtures`` has them."""
    model = config.model

    def layer(number):
        part = f"layers.{number}."
        found = {}
        for name, value in values.items():
            if not name.startswith(part):
                continue
            item, keys = value.double().numpy(), name.removeprefix(part).split(".")
            if keys[-1] == "weight" and value.dim() == 2:
                item = item.T
            place = found
            if keys[0] in ("attention", "moe", "mlp"):
                place = found.setdefault(keys[0], {})
                keys = keys[1:]
            if keys[0] == "shared":
                place, keys = place.setdefault("shared", {}), keys[1:]
            keys = keys[1:] if keys[0] == "experts" else keys
            key = keys[0] if keys[-1] in ("weight", keys[0]) else f"{keys[0]}_bias"
            if keys[0].startswith("w") and keys[-1] == "bias":
                key = f"b{keys[0][1:]}"
            if model.form and model.form.latent and not model.form.latent.queries:
                key = {"q_up": "wq"}.get(key, key)
            place[key] = item
        if "mlp" in found:
            found["mlp_norm"] = found.pop("moe_norm")
        return found

    def stacked(layers):
        first = layers[0]
        if isinstance(first, dict):
            return {key: stacked([each[key] for each in layers]) for key in first}
        return np.stack(layers)

    layers = [layer(number) for number in range(model.layers)]
    period, rest = len(model.period), layers[model.dense :]
    blocks = [stacked(rest[place::period]) for place in range(period)]
    ends = {
        name: values[f"{name}.weight"].double().numpy() for name in ("embedding", "norm", "head")
    }
    tree = {**ends, "head": ends["head"].T, "blocks": blocks if period > 1 else blocks[0]}
    return {**tree, "dense": stacked(layers[: model.dense])} if model.dense else tree


def compared(name, way, rank):
    config = config_of(name, way)
    generator = torch.Generator().manual_seed(0)
    model = Model(config, dist.group.WORLD)
    values, along = (drawn(model, RANKS, generator) for _ in range(2))
    along = {key: 0 * item if "correction" in key else item for key, item in along.items()}
    with torch.no_grad():
        tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}
        for key, value in values.items():
            tensors[key].copy_(own(key, value, rank))
    shape = (RANKS, SEQUENCES, config.sequence + 1)
    tokens = torch.randint(config.model.vocabulary, shape, generator=generator)[rank]
    loads = []
    for part in model.modules():
        if isinstance(part, Mixture):
            part.router.register_forward_hook(lambda *args: loads.append(args[-1].argmax(-1)))
    loss = loss_of(model(tokens[:, :-1]), tokens[:, 1:])
    loss.backward()
    batch = {"tokens": tokens[:, :-1].numpy(), "targets": tokens[:, 1:].numpy()}

    def exact(by):
        moved = {key: item.double() + by * along[key] for key, item in values.items()}
        return dense_mixtures.loss(name, config.model, tree_of(config, moved), batch)

    step = 1e-6
    slopes = torch.tensor([
        sum(
            float((item.grad.double() * own(key, along[key], rank)).sum())
            for key, item in model.named_parameters()
        ),
        (exact(step) - exact(-step)) / (2 * step),
    ]).double()  # fmt: skip
    dist.all_reduce(slopes)
    truth = exact(0.0)
    return {
        "loss": abs(loss.item() - truth) / truth,
        "slope": abs(float(slopes[0] / slopes[1] - 1)),
    }, torch.cat(loads).bincount(minlength=config.model.experts.count).tolist()


def work(rank, folder):
    torch.set_num_threads(1)
    # Its reference on the CPU has a backward pass, though it says that there is none.
    flex_attention._validate_device = lambda *_: None
    flex_attention._FLEX_ATTENTION_DISABLE_COMPILE_DEBUG = True
    store = dist.FileStore(f"{folder}/store", RANKS)
    dist.init_process_group("gloo", rank=rank, world_size=RANKS, store=store)
    found = {}
    for name in NAMES:
        for way in WAYS:
            result, loads = compared(name, way, rank)
            everyone = [None] * RANKS
            dist.all_gather_object(everyone, (result, loads))
            worst = {key: max(one[0][key] for one in everyone) for key in result}
            found[f"{name} {way}"] = worst
            found["loads"] = [one[1] for one in everyone]
    if rank == 0:
        (Path(folder) / "result.json").write_text(json.dumps(found))
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.start_processes(work, (sys.argv[1],), RANKS, start_method="fork")
