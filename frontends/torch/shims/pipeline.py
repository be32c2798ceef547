"""Pipeline stages without their neighbours.

Before the first step the stages vote whether shapes are known, and if not, send each other the form
of their outputs.  The vote is this rank's own; the form of a stage's input is obtained from the
rank that would send it; gradients have the form of the tensors that they belong to.

Schedules that compute gradients of weights apart (zero bubble) go over sets of autograd's nodes, in
the order of their addresses, which differs from process to process.  Here the order is that of the
parameters, so that ranks that do the same are seen to do the same.

A run of the step that is not recorded passes one microbatch through the schedule: the first creates
all that is created once.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._ordered_set import OrderedSet

from flint.errors import FlintError
from flint.frontends.torch.context import capture
from flint.frontends.torch.patching import around, replace
from flint.frontends.torch.recording.naming import PIPELINING
from flint.host.imports import watch_imports

#: Actions of which one microbatch does not create all: FSDP reduces no gradients of weights apart.
_APART = ("BACKWARD_INPUT", "BACKWARD_WEIGHT", "OVERLAP_F_B")


def apply() -> None:
    """Make stages find out without messages what their neighbours would send.

    Few programs have stages, and importing them imports Dynamo: a second of processor time.
    """
    watch_imports({PIPELINING: _apply})


def _apply() -> None:
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
    for kind in (
        schedules._PipelineScheduleRuntime,
        schedules.Schedule1F1B,
        schedules.ScheduleGPipe,
    ):
        around(kind, "_step_microbatches", _one_of_them)
    vars(_backward)["set"] = OrderedSet  # in place of the builtin; as in torch 2.12 to 2.14
    around(_backward, "get_param_groups", _in_order)


def _one_of_them(
    original: Any,
    self: Any,
    arg_mbs: list[Any] | None = None,
    kwarg_mbs: list[Any] | None = None,
    target_mbs: list[Any] | None = None,
    losses: list[Any] | None = None,
    return_outputs: bool = True,
    **more: Any,
) -> None:
    """A step's microbatches; of one that is not recorded, the first in the place of each."""
    orders = vars(self).get("pipeline_order_with_comms")
    own = orders[self.rank] if orders else ()
    special = getattr(self, "_comp_type_to_function_map", ())
    special = special or any(action.computation_type.name in _APART for action in own)
    if special or not capture().rehearses:
        original(self, arg_mbs, kwarg_mbs, target_mbs, losses, return_outputs, **more)
        return
    count = self._n_microbatches
    args, kwargs = self._check_inputs(arg_mbs, kwarg_mbs, target_mbs, losses)
    targets = None if target_mbs is None else target_mbs[:1]
    prepare = self._initialize_stage if not orders else self._initialize_stages
    # With all microbatches: the stages make a place for each one's input.
    prepare(args[0], kwargs[0], None if targets is None else targets[0], *more.values())
    found: list[Any] = []
    self._n_microbatches = 1
    if orders:
        orders[self.rank] = [action for action in own if not action.microbatch_index]
    try:
        original(self, args[:1], kwargs[:1], targets, found, return_outputs, **more)
    finally:
        self._n_microbatches = count
        if orders:
            orders[self.rank] = own
    if losses is not None and found:
        losses[:] = found * count
    for stage in vars(self).get("_stages") or [self._stage]:
        stage.output_chunks *= count


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
