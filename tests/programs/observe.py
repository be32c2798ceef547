"""Run a program for real as one rank, and list what one of its steps dispatches.

    python observe.py OUT.json train.py --its arguments
    python observe.py OUT.json --cuda-is-cpu -m package.train --its arguments
    python observe.py OUT.json --cuda-is-cpu --gpu-kernels ...     # under the GPU's name
    python observe.py OUT.json --rounds-of batch train.py          # which has none or several

The step is the third one: from the end of the second optimizer step (of each optimizer, if there
are several, and of each set of parameters that it is given) to the end of the third, or from the
third call of a function of the program to the fourth.
Listed by a dispatch mode of its own, below autograd: the collectives of each group of ranks, and the
messages to and from each rank, in order, with bytes; and the FLOPs of matrix products.
An op that communicates and is not in the table here is an error.
"""

import contextlib
import json
import os
import runpy
import sys
from collections import Counter, defaultdict

import torch
import torch.distributed as dist
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

#: Op of PyTorch that communicates -> (what it is called everywhere, which argument holds what it
#: sends, and of messages: what says who is at the other end).
KINDS = {
    "allreduce_": ("all_reduce", 0),
    "allreduce_coalesced_": ("all_reduce", 0),
    "reduce_": ("all_reduce", 0),  # Flint writes it so, with a warning
    "broadcast_": ("broadcast", 0),
    "_allgather_base_": ("all_gather", 1),
    "allgather_": ("all_gather", 1),
    "allgather_coalesced_": ("all_gather", 1),
    "allgather_into_tensor_coalesced_": ("all_gather", 1),
    "_reduce_scatter_base_": ("reduce_scatter", 1),
    "reduce_scatter_": ("reduce_scatter", 1),
    "reduce_scatter_tensor_coalesced_": ("reduce_scatter", 1),
    "alltoall_base_": ("all_to_all", 1),
    "alltoall_": ("all_to_all", 1),
    "barrier": ("all_reduce", 0),
    "gather_": ("gather", 1, 3),
    "scatter_": ("scatter", 1, 3),
    "send": ("to", 0, 2),
    "recv_": ("from", 0, 2),
    "recv_any_source_": ("from", 0, None),
    "all_reduce": ("all_reduce", 0),
    "all_reduce_": ("all_reduce", 0),
    "all_reduce_coalesced": ("all_reduce", 0),
    "all_reduce_coalesced_": ("all_reduce", 0),
    "broadcast": ("broadcast", 0),
    "all_gather_into_tensor": ("all_gather", 0),
    "all_gather_into_tensor_out": ("all_gather", 0),
    "all_gather_into_tensor_coalesced": ("all_gather", 0),
    "reduce_scatter_tensor": ("reduce_scatter", 0),
    "reduce_scatter_tensor_out": ("reduce_scatter", 0),
    "reduce_scatter_tensor_coalesced": ("reduce_scatter", 0),
    "all_to_all_single": ("all_to_all", 0),
    "shard_dim_alltoall": ("all_to_all", 0),
}
#: Namespaces of what communicates, and what in them does not.
NAMESPACES = ("c10d", "_c10d_functional", "_dtensor")
SILENT = ("wait_tensor", "check_for_nan", "_wrap_tensor_autograd", "mesh_get_process_group")
PRODUCTS = ("mm", "addmm", "bmm", "baddbmm", "_grouped_mm")
#: Ops that become products above the dispatch modes, but for nested tensors.
LAYERS = ("linear", "matmul")
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
            return dist.get_process_group_ranks(group)
    return []


def size_of(items):
    """Bytes of all tensors in any nesting."""
    tensors = (item for item in tree_leaves(items) if isinstance(item, torch.Tensor))
    return sum(item.numel() * item.element_size() for item in tensors)


def messages_of(kind, args, peer, members):
    """(to or from whom, bytes) of each message of an op, as NCCL's process group sends them."""
    if kind in ("to", "from"):
        yield f"{kind} {'any' if peer is None else members[args[peer]]}", size_of(args[0])
        return
    root, rank = members[args[peer]], dist.get_rank()
    many = args[0] if kind == "gather" else args[1]  # the root's, a tensor for each rank
    if rank != root:
        one = args[1] if kind == "gather" else args[0]
        yield f"{'to' if kind == 'gather' else 'from'} {root}", size_of(one)
        return
    for other, tensor in zip(members, *many, strict=True):
        if other != root:
            yield f"{'from' if kind == 'gather' else 'to'} {other}", size_of(tensor)


class Observer(TorchDispatchMode):
    def __init__(self, place):
        super().__init__()
        self.place = place  # a device of a program's -> the one that is there
        self.collectives, self.flops, self.on = {}, 0, False
        self.unknown = set()

    def turn(self, on):
        """Begin to list what is dispatched, or end it."""
        if on:
            self.collectives, self.flops = defaultdict(list), 0
        self.on = on

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        from torch.distributed.tensor import DTensor
        from torch.nested._internal.nested_tensor import NestedTensor

        if any(issubclass(kind, (DTensor, NestedTensor)) for kind in types):
            return NotImplemented  # they become ops on their parts
        if self.on:
            self.see(op, args)
        kwargs = dict(kwargs or {})
        if "device" in kwargs:  # modes of functions do not see what hooks ask for
            kwargs["device"] = self.place(kwargs["device"])
        if (torch.is_inference_mode_enabled() or op._opname in LAYERS) and op._can_decompose():
            with self:  # of their products autograd would tell
                return op.decompose(*args, **kwargs)
        return op(*args, **kwargs)

    def see(self, op, args):
        name = op._opname
        if op.namespace == "aten" and name in PRODUCTS:
            self.flops += flops_of(name, args)
        if op.namespace not in NAMESPACES or name in SILENT:
            return
        if name not in KINDS:
            self.unknown.add(f"{op.namespace}.{name}")
            return
        kind, at, *peer = KINDS[name]
        members = members_of(args)
        if len(members) == 1:  # which communicates nothing
            return
        if peer:
            for where, size in messages_of(kind, args, *peer, members):
                self.collectives[where].append(["message", size])
            return
        where = f"over {', '.join(map(str, sorted(members)))}"
        sizes = {size_of(item) for item in args[0][0]} if name == "allgather_" else ()
        if len(sizes) > 1:  # NCCL's process group broadcasts parts of different sizes
            self.collectives[where] += [["broadcast", size_of(item)] for item in args[0][0]]
            return
        size = NCCL_BARRIER if name == "barrier" else size_of(args[at])
        self.collectives[where].append([kind, size])


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
        on = min(steps.values()) == before
        if on != observer.on:
            observer.turn(on)

    if arguments[0] == "--rounds-of":
        _, name, *arguments = arguments
        sys.setprofile(
            lambda frame, event, _: (
                event == "call" and frame.f_code.co_name == name and passed(name, 3)
            )
        )
    else:

        def stepped(optimizer, *_):
            own = (id(item) for group in optimizer.param_groups for item in group["params"])
            passed((id(optimizer), *own), 2)

        register_optimizer_step_post_hook(stepped)
    with observer, kernels:
        try:
            run(*arguments)
        except SystemExit as left:
            if left.code:
                raise
    with open(out, "w") as file:
        json.dump({"collectives": observer.collectives, "flops": observer.flops}, file)
    if observer.unknown:
        sys.exit(f"observe.py has no row for {', '.join(sorted(observer.unknown))}")


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    # A thread of gloo's that is still there aborts some processes as they end otherwise.
    os._exit(0)
