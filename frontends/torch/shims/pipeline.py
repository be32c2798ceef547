"""Pipeline stages without their neighbours.

Before the first step the stages vote whether shapes are known, and if not, send each other the form
of their outputs.  The vote is this rank's own; the form of a stage's input is obtained from the
rank that would send it; gradients have the form of the tensors that they belong to.

Schedules that compute gradients of weights apart (zero bubble) go over sets of autograd's nodes, in
the order of their addresses, which differs from process to process.  Here the order is that of the
parameters, so that ranks that do the same are seen to do the same.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._ordered_set import OrderedSet

from flint.errors import FlintError
from flint.frontends.torch.context import capture
from flint.frontends.torch.patching import around, replace


def apply() -> None:
    """Make stages find out without messages what their neighbours would send."""
    import torch.distributed.pipelining as pipelining
    from torch.distributed.pipelining import _backward

    schedules: Any = pipelining.schedules
    stage: Any = pipelining.stage

    def vote(
        original: Any, self: Any, stages: list[Any], has_backward: bool, p2p_done: bool
    ) -> None:
        if not all(isinstance(item, stage.PipelineStage) for item in stages):
            original(self, stages, has_backward, p2p_done)
            return
        mode: Any = schedules.InferenceMode
        dynamic = any(mode.needs_dynamic(item._user_meta, has_backward) for item in stages)
        for item in stages:
            item._inference_mode = mode.DYNAMIC if dynamic else mode.STATIC

    def receive(self: Any, source: int) -> Any:
        if source > self.stage_index:
            gradients = stage._derive_grad_metas(self._stage_meta.outputs)
            return stage._StageBackwardMeta(backward_metas=gradients)
        peers = capture().peers
        assert peers is not None
        sent = peers.ask(self._resolve_peer_global_rank(source), self.stage_index)
        return stage._StageForwardMeta(forward_metas=tuple(_meta(item) for item in sent))

    def send(self: Any, meta: Any, target: int) -> None:
        peers = capture().peers
        if target > self.stage_index and peers is not None:
            peers.sent(target, [_plain(item) for item in meta.forward_metas])

    around(schedules._PipelineSchedule, "_warmup_p2p", vote)
    replace(stage.PipelineStage, "_recv_meta", receive)
    replace(stage.PipelineStage, "_send_meta", send)
    vars(_backward)["set"] = OrderedSet  # in place of the builtin; as in torch 2.12 to 2.14
    around(_backward, "get_param_groups", _in_order)


def _in_order(original: Any, inputs: Any, params: list[Any], *rest: Any) -> list[dict[str, Any]]:
    """Groups of parameters whose gradients are computed together, in the order of parameters."""
    groups: list[dict[str, Any]] = original(inputs, params, *rest)
    for group in groups:
        group["params"] = OrderedSet(item for item in params if item in group["params"])
    return groups


def _plain(meta: Any) -> dict[str, Any]:
    """A tensor's shape, strides and dtype as JSON can hold them."""
    if type(meta).__name__ != "_TensorMeta":
        raise FlintError(
            "a pipeline stage sends a DTensor: send local tensors, or give the stages input_args "
            "and output_args"
        )
    return {
        "shape": list(meta.shape),
        "stride": list(meta.stride),
        "dtype": str(meta.dtype).removeprefix("torch."),
        "requires_grad": bool(meta.requires_grad),
    }


def _meta(looks: dict[str, Any]) -> Any:
    from torch.distributed.pipelining import _utils

    kind: Any = _utils._TensorMeta
    return kind(
        shape=torch.Size(looks["shape"]),
        stride=tuple(looks["stride"]),
        dtype=getattr(torch, looks["dtype"]),
        requires_grad=looks["requires_grad"],
    )
