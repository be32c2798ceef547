"""Calls that a capture refuses, naming the user's line, as the recording would differ from a run.

The size of a sparse tensor (but one made of rows and a size: ``sparse_rows``), the lengths of the
parts of a nested tensor (but one of jagged layout: ``jagged``), and how much of them each rank
communicates, depend on values; and PyTorch ends the process if fake tensors become sparse.  Which
rank sends first to one that receives from any rank is decided only in a run; so is which process
runs what another one calls (RPC).  NCCL adds up no sparse gradients.
"""

from __future__ import annotations

import functools
from typing import Any, NoReturn

import torch
import torch.distributed as dist
import torch.distributed.rpc as rpc
from torch._subclasses.fake_tensor import FakeTensor
from torch.distributed import distributed_c10d
from torch.nn.parallel import distributed

from flint.errors import FlintError
from flint.frontends.torch.patching import around, replace
from flint.frontends.torch.recording.schemas import tensors_in
from flint.frontends.torch.user_lines import at_user_line

#: What makes tensors whose sizes are values, and what to use instead.
_SPARSE = (
    "sparse_coo_tensor", "sparse_csr_tensor", "sparse_csc_tensor", "sparse_bsr_tensor",
    "sparse_bsc_tensor", "sparse_compressed_tensor",
)  # fmt: skip
_TO_SPARSE = ("to_sparse", "to_sparse_coo", "to_sparse_csr", "to_sparse_csc", "to_sparse_bsr")
_NESTED = ("nested_tensor", "as_nested_tensor", "narrow")  # of strided layout
_DENSE = "use dense tensors, or indices with index_select and index_add"
_PACKED = "use layout=torch.jagged, or pack the sequences and call varlen_attn"


def apply() -> None:
    """Refuse sparse and nested tensors, receiving from any rank, and calls of other processes."""
    for owner, names, kind, advice in (
        (torch, _SPARSE, "sparse", _DENSE),
        (torch.Tensor, _TO_SPARSE, "sparse", _DENSE),
        (torch.nested, _NESTED, "nested", _PACKED),
    ):
        for name in names:
            around(owner, name, functools.partial(_sized_by_values, kind, advice))
    around(distributed.DistributedDataParallel, "_build_params_for_reducer", _dense)
    for name in ("recv", "irecv"):
        around(distributed_c10d, name, _from_named_rank)
        replace(dist, name, getattr(distributed_c10d, name))
    if rpc.is_available():
        around(rpc, "init_rpc", _calls)


def _sized_by_values(kind: str, advice: str, function: Any, *args: Any, **kwargs: Any) -> Any:
    if function.__name__ == "sparse_coo_tensor" and (kwargs.get("size") or len(args) > 2):
        return function(*args, **kwargs)  # of rows, or refused when it is put together
    if any(item is torch.jagged for item in (*args, *kwargs.values())):
        return function(*args, **kwargs)
    device = kwargs.get("device")
    on_device = device is not None and torch.device(device).type not in ("cpu", "meta")
    taken = (*tensors_in(args), *tensors_in(tuple(kwargs.values())))
    if on_device or any(isinstance(item, FakeTensor) for item in taken):
        raise_sized_by_values(function.__name__, kind, advice)
    return function(*args, **kwargs)


def raise_sized_by_values(what: str, kind: str = "sparse", advice: str = _DENSE) -> NoReturn:
    """Refuse a tensor whose size values decide.

    Args:
        what: makes it.
        kind: of tensor.
        advice: what to use instead.

    Raises:
        FlintError: always.
    """
    raise FlintError(
        f"{what}{at_user_line()} makes a {kind} tensor on the device: its size depends on values, "
        f"and a captured step has none; {advice}"
    )


def _dense(original: Any, ddp: Any) -> Any:
    """The parameters that DDP reduces, and which of them have sparse gradients."""
    parameters, sparse = original(ddp)
    if any(sparse):
        raise FlintError(
            f"DistributedDataParallel{at_user_line()} has embeddings with sparse=True: NCCL adds "
            "up no sparse gradients, so a run on GPUs fails, and gloo's exchange of them is not "
            "captured; use sparse=False"
        )
    return parameters, sparse


def _calls(*_: Any, **__: Any) -> NoReturn:
    raise FlintError(
        f"init_rpc{at_user_line()}: a process whose functions others call (torch.distributed.rpc) "
        "does what they ask for as it runs, which is not captured; exchange tensors by collectives "
        "or send and recv"
    )


def _from_named_rank(
    function: Any, tensor: Any, src: Any = None, group: Any = None, tag: int = 0,
    group_src: Any = None,
) -> Any:  # fmt: skip
    if src is None and group_src is None:
        raise FlintError(
            f"{function.__name__}{at_user_line()} receives from any rank: which one sends first is "
            "known only in a run; name the sender: src=..."
        )
    return function(tensor, src, group, tag, group_src)
