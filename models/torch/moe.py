"""Mixtures of experts in PyTorch: training steps of any of ``flint.models.mixtures``.

The idea: ``llama3.py``'s blocks with experts in place of the feed-forward network.  Every rank has
some of the experts; the ranks along the mesh axis "ep" together have all of them, and exchange rows
of tokens by all-to-alls, there and back (``moe_dispatch.py``).  Where counts depend on what the
router chose, a capture has no values and takes them from its routing model (``@flint.capture(...,
routing=...)``), which it reports.

    ("dp", "ep")        every rank has sequences of its own; experts are split over ep and, by FSDP,
                        over dp; everything else by FSDP over all ranks
    ("pp", "dp", "ep")  the same in every stage of a pipeline

    flint capture models/torch/moe.py:train_mixtral --mesh 64,8 -o out/

Published models are in ``moe_sizes.py``.  Losses that balance the load are left out.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import Shard

import flint
from flint.models import mixtures
from flint.models.mixtures import DENSE, MIXTURES, Heads, Layer
from flint.models.torch import parallel
from flint.models.torch.layers import FeedForward, rotary_table
from flint.models.torch.moe_attention import attention_of, rotated_size
from flint.models.torch.moe_dispatch import DISPATCHES
from flint.models.torch.moe_experts import GATES, Experts


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """A model and how it is trained.

    Attributes:
        model: its sizes.
        sequence: tokens of a training sequence.
        sequences: sequences of a rank's batch; in a pipeline, of a microbatch.
        dispatch: a key of ``moe_dispatch.DISPATCHES``.
        products: a key of ``moe_experts.PRODUCTS``.
        checkpoint: as of ``llama3.Config``: False, True, every n-th block, "selective".
        forced: tokens go to all experts in turn, whatever the router says (a setting that
            frameworks have for measurements).
        rate: by which the gate "sigmoid" changes its bias after a step (DeepSeek-V3: 0.001).
        schedule, microbatches, stages: of a pipeline, as of ``llama3.Config``.
        dtype: of activations, and of weights in products; parameters are float32.
    """

    model: mixtures.Mixture
    sequence: int = 4096
    sequences: int = 1
    dispatch: str = "dropless"
    products: str = "grouped"
    checkpoint: bool | int | str = False
    forced: bool = False
    rate: float = 0.001
    schedule: str = "1F1B"
    microbatches: int = 4
    stages: int = 1
    dtype: torch.dtype = torch.bfloat16


TINY = Config(
    model=mixtures.Mixture(
        layers=2, width=64, heads=Heads(queries=8, keys=4, size=8), vocabulary=256,
        experts=mixtures.Experts(count=8, chosen=2, hidden=128),
    ),
    sequence=32,
)  # fmt: skip
#: "Mixtral of Experts" (2024), table 1.  No token is dropped.
MIXTRAL_8X7B = Config(model=MIXTURES["mixtral-8x7b"])


class Mixture(nn.Module):
    """Router and experts, those of other ranks too.

    Args:
        config: the model.
        group: the ranks that have all experts together, equally many each.
    """

    def __init__(self, config: Config, group: dist.ProcessGroup) -> None:
        super().__init__()
        width, sizes = config.model.width, config.model.experts
        self.config, self.sizes, self.group = config, sizes, group
        self.router = nn.Linear(width, sizes.count, bias=sizes.biases)
        self.experts = Experts(sizes.count // group.size(), width, sizes, config.products)
        self.shared = FeedForward(width, sizes.shared) if sizes.shared else None
        balanced = sizes.gate == "sigmoid"
        self.register_buffer("correction", torch.zeros(sizes.count) if balanced else None)
        load = torch.zeros(sizes.count) if balanced else None
        self.register_buffer("load", load, persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(B, S, D) -> (B, S, D)."""
        tokens, sizes = x.flatten(0, 1), self.sizes
        weights, choices = GATES[sizes.gate](self.router(tokens).float(), self.correction, sizes)
        if self.config.forced:
            turn = torch.arange(choices.numel(), device=x.device) % sizes.count
            choices = turn.view_as(choices)
        if self.load is not None:
            with torch.no_grad():
                self.load += torch.histc(choices.float(), sizes.count, min=0, max=sizes.count)
        sent = tokens
        if sizes.gate == "input":  # the weight is on what goes in; a token has one expert
            sent, weights = tokens * weights.type_as(tokens), torch.ones_like(weights)
        dispatch = DISPATCHES[self.config.dispatch]
        mixed = dispatch(sent, weights, choices, self.experts, sizes, self.group)
        if self.shared is not None:
            mixed = mixed + self.shared(tokens)
        return mixed.view_as(x)


class Block(nn.Module):
    """Attention, and a mixture or a feed-forward network, each behind a norm and beside a
    residual."""

    def __init__(self, config: Config, kind: Layer, group: dist.ProcessGroup) -> None:
        super().__init__()
        model = config.model
        self.attention_norm = nn.RMSNorm(model.width, eps=1e-5)
        self.attention = attention_of(model.width, model.heads, model.form, kind.span)
        self.moe_norm = nn.RMSNorm(model.width, eps=1e-5)
        self.moe = Mixture(config, group) if kind.sparse else None
        self.mlp = None if kind.sparse else FeedForward(model.width, model.hidden)

    def forward(self, x: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
        """(B, S, D) -> (B, S, D)."""
        x = x + self.attention(self.attention_norm(x), table)
        return x + (self.moe or self.mlp)(self.moe_norm(x))  # type: ignore[misc]  # one is there


def kinds(model: mixtures.Mixture) -> list[Layer]:
    """What each layer is."""
    times, rest = divmod(model.layers - model.dense, len(model.period))
    if rest:
        raise ValueError(f"{model.layers} layers: no whole periods of {len(model.period)}")
    return [DENSE] * model.dense + list(model.period) * times


class Model(nn.Module):
    """The model with the experts of one rank, or a pipeline stage of it.

    Args:
        config: the whole model's.
        group: the ranks among which the experts are split.
        layers: numbers of the blocks; default: all.
        first: takes tokens (B, S); otherwise what the stage before returns.
        last: returns scores (B, S, V); otherwise the residual stream (B, S, D).
    """

    def __init__(
        self,
        config: Config,
        group: dist.ProcessGroup,
        layers: range | None = None,
        first: bool = True,
        last: bool = True,
    ) -> None:
        super().__init__()
        self.config, model = config, config.model
        chosen = range(model.layers) if layers is None else layers
        all_kinds = kinds(model)
        self.embedding = nn.Embedding(model.vocabulary, model.width) if first else None
        self.layers = nn.ModuleDict(
            {str(number): Block(config, all_kinds[number], group) for number in chosen}
        )
        self.norm = nn.RMSNorm(model.width, eps=1e-5) if last else None
        self.head = nn.Linear(model.width, model.vocabulary, bias=False) if last else None
        self.register_buffer("rotary", self._rotary(), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Scores of the next token, or what the next stage takes."""
        if self.embedding is not None:
            x = self.embedding(x)
        for block in self.layers.values():
            x = block(x, self.rotary)
        return x if self.head is None or self.norm is None else self.head(self.norm(x))

    def initialise(self) -> None:
        """Give every parameter and buffer its first value, where it is."""
        for name, parameter in self.named_parameters():
            if name.endswith(("bias", "sinks")):
                nn.init.zeros_(parameter)
            elif parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)
            else:
                nn.init.ones_(parameter)
        for buffer in self.buffers():
            buffer.zero_()
        self.rotary = self._rotary(self.rotary.device)

    def _rotary(self, device: torch.device | None = None) -> torch.Tensor:
        model = self.config.model
        size = rotated_size(model.heads, model.form)
        return rotary_table(self.config.sequence, size, model.heads.theta, device)


def shard(model: Model, mesh: DeviceMesh, keep: bool = False) -> None:
    """FSDP: experts over "dp", everything else over all ranks of "dp" and "ep".

    Args:
        model: on the meta device.
        mesh: of the cluster.
        keep: do not free gathered parameters after the forward pass, as in a pipeline.
    """
    dtype = model.config.dtype
    policy = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32)
    everyone = _everyone(mesh)
    options: dict[str, Any] = {"mp_policy": policy, "reshard_after_forward": not keep}
    evenly = functools.partial(evenly_placed, everyone.size())
    for block in model.layers.values():
        if block.moe is not None:
            experts, data = block.moe.experts, mesh["dp"]
            placed = functools.partial(evenly_placed, data.size())
            fully_shard(experts, mesh=data, shard_placement_fn=placed, **options)
            # Tokens of all ranks come to an expert, and the loss is the mean over all ranks.
            experts.set_gradient_divide_factor(everyone.size())
        fully_shard(block, mesh=everyone, shard_placement_fn=evenly, **options)
    fully_shard(model, mesh=everyone, mp_policy=policy, shard_placement_fn=evenly)


def _everyone(mesh: DeviceMesh) -> DeviceMesh:
    """The ranks that have sequences of their own for the same layers."""
    return mesh["dp", "ep"]._flatten("dp_ep")


def evenly_placed(ranks: int, parameter: nn.Parameter) -> Shard:
    """Split a parameter along its first dim that divides among the ranks, else along the first.

    A router has fewer rows than there are ranks, a rank one expert: split by these, most ranks
    would have none and gather what is mostly padding.
    """
    even = (dim for dim, size in enumerate(parameter.shape) if size % ranks == 0)
    return Shard(next(even, 0))


def check(config: Config, mesh: DeviceMesh) -> None:
    """Refuse a mesh that the model cannot be split over.

    Raises:
        ValueError: experts that do not divide among the ranks of "ep".
    """
    count, ranks = config.model.experts.count, mesh["ep"].size()
    if count % ranks:
        raise ValueError(f"{count} experts do not divide among {ranks} ranks")


def finished(model: Model, mesh: DeviceMesh, keep: bool = False) -> Model:
    """A model that was made on the meta device, split, on the mesh's devices, initialised."""
    checkpoint = model.config.checkpoint
    if checkpoint:
        options = {"context_fn": parallel.selective} if checkpoint == "selective" else {}
        for name, block in list(model.layers.items())[:: int(checkpoint) if not options else 1]:
            model.layers[name] = checkpoint_wrapper(block, **options)
    shard(model, mesh, keep)
    model.to_empty(device=mesh.device_type)
    with torch.no_grad():
        model.initialise()
    return model


def batch_of(config: Config, sequences: int, device: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Random tokens and targets, (sequences, S) each."""
    shape = (sequences, config.sequence)
    tokens, targets = (
        torch.randint(config.model.vocabulary, shape, device=device) for _ in range(2)
    )
    return tokens, targets


def optimizer_of(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """AdamW."""
    return torch.optim.AdamW(parameters, lr=3e-4, weight_decay=0.1)


def build(config: Config, mesh: DeviceMesh) -> tuple[Any, ...]:
    """Model, optimizer, batch and mesh, of a mesh ("dp", "ep").

    Raises:
        ValueError: as of ``check``.
    """
    check(config, mesh)
    with torch.device("meta"):
        model = Model(config, mesh["ep"].get_group())
    finished(model, mesh)
    batch = batch_of(config, config.sequences, mesh.device_type)
    return model, optimizer_of(model.parameters()), batch, mesh


def loss_of(scores: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Mean cross entropy of the next token; scores (B, S, V), targets (B, S)."""
    return F.cross_entropy(scores.flatten(0, 1).float(), targets.flatten())


@torch.no_grad()
def balance(models: Iterable[Model], mesh: DeviceMesh) -> None:
    """Change the router's biases towards experts that got less than the mean (DeepSeek-V3)."""
    found = [m for model in models for m in model.modules() if isinstance(m, Mixture)]
    found = [mixture for mixture in found if mixture.load is not None]
    if not found:
        return
    loads = torch.stack([mixture.load for mixture in found])
    dist.all_reduce(loads, group=_everyone(mesh).get_group())
    for mixture, load in zip(found, loads, strict=True):
        mixture.correction += mixture.config.rate * torch.sign(load.mean() - load)
        mixture.load.zero_()


def step(
    model: Model,
    optimizer: torch.optim.Optimizer,
    batch: tuple[torch.Tensor, torch.Tensor],
    mesh: DeviceMesh,
) -> torch.Tensor:
    """One training step; returns the loss of the rank's tokens."""
    tokens, targets = batch
    loss = loss_of(model(tokens), targets)
    loss.backward()
    balance([model], mesh)
    optimizer.step()
    optimizer.zero_grad()
    return loss


def build_pipeline(config: Config, mesh: DeviceMesh) -> tuple[Any, ...]:
    """Arguments of ``pipeline_step`` on a rank of a mesh ("pp", "dp", "ep")."""
    check(config, mesh)
    with torch.device("meta"):
        make = functools.partial(Model, config, mesh["ep"].get_group())
        stages = parallel.pipeline_stages(make, config.model.layers, mesh, config.stages)
    models = nn.ModuleList(finished(part, mesh, keep=True) for _, part in stages)  # type: ignore[arg-type]  # made here
    schedule = parallel.pipeline(stages, mesh, config.schedule, config.microbatches, loss_of)
    batch = batch_of(config, config.sequences * config.microbatches, mesh.device_type)
    return models, schedule, optimizer_of(models.parameters()), batch, mesh


def pipeline_step(
    models: nn.ModuleList,
    schedule: Any,
    optimizer: torch.optim.Optimizer,
    batch: tuple[torch.Tensor, torch.Tensor],
    mesh: DeviceMesh,
) -> None:
    """One training step of a pipeline's rank."""
    tokens, targets = batch
    given = [tokens] if models[0].embedding is not None else []
    schedule.step(*given, target=targets if models[-1].head is not None else None)
    balance(models, mesh)  # type: ignore[arg-type]  # Models
    optimizer.step()
    optimizer.zero_grad()


def training(
    config: Config,
    mesh: tuple[int, ...],
    axes: tuple[str, ...] = ("dp", "ep"),
    routing: Any = "balanced",
) -> Any:
    """A training step of a model: ``training(MIXTRAL_8X7B, mesh=(64, 8)).capture()``.

    Args:
        config: the model.
        mesh: ranks along the axes.
        axes: "dp" and "ep", and "pp" for a pipeline.
        routing: "balanced", "zipf:1.2", or relative loads of the experts.  Ranks whose experts
            together get unlike loads are programs of their own.
    """
    setup, run = (build_pipeline, pipeline_step) if "pp" in axes else (build, step)
    capture: Callable[..., Any] = flint.capture(
        mesh=mesh, axes=axes, setup=functools.partial(setup, config), routing=routing
    )
    return capture(run)


train_tiny = training(TINY, mesh=(2, 4))
train_tiny_pipeline = training(
    replace(TINY, model=replace(TINY.model, layers=4)), mesh=(2, 2, 2), axes=("pp", "dp", "ep")
)
train_mixtral = training(MIXTRAL_8X7B, mesh=(64, 8))
