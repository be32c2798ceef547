"""Run a program for real as one rank, and list what one of its steps dispatches.

    python observe.py OUT.json train.py --its arguments
    python observe.py OUT.json --cuda-is-cpu -m package.train --its arguments
    python observe.py OUT.json --cuda-is-cpu --gpu-kernels ...     # under the GPU's name
    python observe.py OUT.json --rounds-of batch train.py          # which has none or several

The step is the third one: from the end of the second optimizer step to the end of the third, or
from the third call of a function of the program to the fourth.
Counted by a dispatch mode of its own, below autograd: collectives with the ranks of their groups
and bytes, and matrix products with their FLOPs.
"""

import contextlib
import json
import os
import runpy
import sys
from collections import Counter

import torch
import torch.distributed as dist
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

#: Collective of PyTorch -> (what it is called everywhere, which argument holds what it sends).
KINDS = {
    "allreduce_": ("all_reduce", 0),
    "_allgather_base_": ("all_gather", 1),
    "allgather_": ("all_gather", 1),
    "allgather_into_tensor_coalesced_": ("all_gather", 1),
    "reduce_scatter_tensor_coalesced_": ("reduce_scatter", 1),
    "allreduce_coalesced_": ("all_reduce", 0),
    "_reduce_scatter_base_": ("reduce_scatter", 1),
    "reduce_scatter_": ("reduce_scatter", 1),
    "broadcast_": ("broadcast", 0),
    "alltoall_base_": ("all_to_all", 1),
    "all_gather_into_tensor": ("all_gather", 0),
    "reduce_scatter_tensor": ("reduce_scatter", 0),
    "all_reduce": ("all_reduce", 0),
    "all_to_all_single": ("all_to_all", 0),
    "barrier": ("all_reduce", 0),
    "send": ("messages", 0),
    "recv_": ("messages", 0),
}
PRODUCTS = ("mm", "addmm", "bmm", "baddbmm", "_grouped_mm")
#: NCCL's process group does a barrier as an all-reduce of one float.
NCCL_BARRIER = 4


def flops_of(name, args):
    """Of a matrix product: two per multiplication and addition."""
    first, second = args[1:3] if name in ("addmm", "baddbmm") else args[:2]
    return 2 * first.numel() * second.shape[-1]


def members_of(args):
    """The ranks of the group among the arguments."""
    for item in args:
        group = None
        if isinstance(item, str) and item.isdigit():  # the name of a group; a reduction is a word
            group = dist.distributed_c10d._resolve_process_group(item)
        elif isinstance(item, torch.ScriptObject):
            with contextlib.suppress(Exception):  # a reduction
                group = dist.ProcessGroup.unbox(item)
        if group is not None:
            return sorted(dist.get_process_group_ranks(group))
    return []


class Observer(TorchDispatchMode):
    def __init__(self, place):
        super().__init__()
        self.place = place  # a device of a program's -> the one that is there
        self.collectives, self.flops, self.on = Counter(), 0, False

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        from torch.distributed.tensor import DTensor

        if any(issubclass(kind, DTensor) for kind in types):
            return NotImplemented
        if self.on:
            self.see(op, args)
        kwargs = dict(kwargs or {})
        if "device" in kwargs:  # modes of functions do not see what hooks ask for
            kwargs["device"] = self.place(kwargs["device"])
        return op(*args, **kwargs)

    def see(self, op, args):
        name = op._opname
        if op.namespace in ("c10d", "_c10d_functional") and name in KINDS:
            kind, at = KINDS[name]
            members = members_of(args)
            if len(members) == 1:  # which communicates nothing
                return
            tensors = (item for item in tree_leaves(args[at]) if isinstance(item, torch.Tensor))
            sent = sum(item.numel() * item.element_size() for item in tensors)
            sent = NCCL_BARRIER if name == "barrier" else sent
            over = "" if kind == "messages" else f" over {', '.join(map(str, members))}"
            what = f"{kind}{over}"
            self.collectives[f"{what}: calls"] += 1
            self.collectives[f"{what}: bytes"] += sent
        elif op.namespace == "aten" and name in PRODUCTS:
            self.flops += flops_of(name, args)


def run(program, *arguments):
    """As Python runs a file, or a module after ``-m``."""
    if program == "-m":
        sys.argv = list(arguments)
        runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)
        return
    sys.argv = [program, *arguments]
    sys.path.insert(0, os.path.dirname(os.path.abspath(program)))
    runpy.run_path(program, run_name="__main__")


def _same(device):
    return device


def main():
    out, *arguments = sys.argv[1:]
    torch.set_num_threads(1)
    place = _same
    if arguments[0] == "--cuda-is-cpu":
        del arguments[0]
        import cuda_is_cpu

        cuda_is_cpu.apply()
        place = cuda_is_cpu.mapped
    kernels = contextlib.nullcontext()
    if arguments[0] == "--gpu-kernels":
        del arguments[0]
        from tests.frontends.torch.real.kernels import accelerator_kernels

        kernels = accelerator_kernels(["attention", "histogram"])
    observer, steps = Observer(place), Counter()

    def passed(what, before):
        steps[what] += 1
        observer.on = steps[what] == before

    if arguments[0] == "--rounds-of":
        _, name, *arguments = arguments
        sys.setprofile(
            lambda frame, event, _: (
                event == "call" and frame.f_code.co_name == name and passed(name, 3)
            )
        )
    else:
        register_optimizer_step_post_hook(lambda optimizer, *_: passed(id(optimizer), 2))
    with observer, kernels:
        run(*arguments)
    with open(out, "w") as file:
        json.dump({"collectives": observer.collectives, "flops": observer.flops}, file)


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    # A thread of gloo's that is still there aborts some processes as they end otherwise.
    os._exit(0)
