"""Classes of work: names for what a step's time is spent on.

The idea: a kernel's class is matmul, attention, reduction, movement or elementwise; a
communication's class is its kind and the mesh axes that it runs along.

    kernel_classes(graph)       # index into KERNELS per node
"""

from __future__ import annotations

import re
from typing import Final

import numpy as np
from numpy.typing import NDArray

from flint.cost.library_kernels import (
    ADDED,
    CHANNELS_FIRST,
    COLUMNS,
    DIRECT,
    LOOPED,
    PER_CHANNEL,
    RECURRENT,
    ROWS,
    TRANSPOSING,
    TWICE,
    UNALIGNED,
    WITH_BIAS,
)
from flint.cost.row_kernels import ROW_KERNELS
from flint.graph.graph import NodeKind, WorkloadGraph
from flint.graph.stated import is_copy
from flint.graph.work import Role, Unit
from flint.mesh.ragged import row_of_entry
from flint.observed.classes import OpClass, aten_class, base_name, is_fused_in_cpp
from flint.observed.exchanging_kernels import COLLECTIVE_KERNEL, EXCHANGING_KERNEL

#: Names of attention kernels in all frameworks.
_ATTENTION: Final = ("attention", "fmha", "flash", "sdpa", "fused_attn")
#: Prefix of the names of kernels that PyTorch's compiler made.
INDUCTOR: Final = "inductor."
#: The same of those that it has templates for: matrix products, FlexAttention.
_TEMPLATE: Final = f"{INDUCTOR}triton_tem_"
#: Its kinds of kernels: pointwise, reductions that loop or fit a block, scans.
_OF_INDUCTOR: Final = {
    "poi": "elementwise", "red": "reduction", "per": "reduction", "spl": "reduction",
    "for": "elementwise",
}  # fmt: skip
#: Classes that kernels are timed by.
KERNELS: Final = ("matmul", "attention", "reduction", "elementwise", "movement", "other")
#: Classes that a step is explained by: kernels that exchange data are apart.
EXCHANGE: Final = "data exchange"
SHOWN: Final = (*KERNELS, EXCHANGE)
#: Compiled fusions by what they do (``flint.stablehlo.rules.heroes``).
_BY_HERO: Final = {
    "convolution": "matmul",
    "gemm": "matmul",
    "gemm epilogue": "matmul",
    "elementwise": "elementwise",
    PER_CHANNEL: "reduction",
    TWICE: "reduction",
    COLUMNS: "reduction",
    ADDED: "reduction",
    ROWS: "reduction",
    LOOPED: "elementwise",
    TRANSPOSING: "movement",
    **dict.fromkeys(ROW_KERNELS, "reduction"),
    DIRECT: "matmul",
    UNALIGNED: "matmul",
    CHANNELS_FIRST: "matmul",
    WITH_BIAS: "matmul",
    RECURRENT: "other",
    **dict.fromkeys(("reduction", "softmax", "normalization"), "reduction"),
    **dict.fromkeys(
        ("movement", "transpose", "scatter", "gather", "concatenate", "update"), "movement"
    ),
}
#: Those, followed by more specific ones for compiled fusions.
FINE: Final = (*SHOWN, *(name for name in _BY_HERO if name not in KERNELS))
_BY_ROLE: Final = {
    Role.REDUCTION: "reduction",
    Role.ELEMENTWISE: "elementwise",
    Role.MOVEMENT: "movement",
    Role.UPDATE: "movement",
    Role.GENERATE: "movement",
    Role.CONTRACTION: "matmul",
}
#: PyTorch's kernels, which have no role, by the class of their op's name.
_BY_CLASS: Final = {
    OpClass.GEMM: "matmul",
    OpClass.CONVOLUTION: "matmul",
    OpClass.ATTENTION: "attention",
    OpClass.REDUCTION: "reduction",
    OpClass.ELEMENTWISE: "elementwise",
    OpClass.COPY: "movement",
}


#: What the name of a library's kernel shows, if it names no op; the first that fits counts.
_BY_KERNEL: Final = (
    (rf"{COLLECTIVE_KERNEL.pattern}|{EXCHANGING_KERNEL.pattern}", EXCHANGE),
    (r"internode|intranode|all_?(reduce|gather|to_?all)", EXCHANGE),
    (r"attn|attention|flash|fmha", "attention"),
    (r"^triton_(poi|for)_|elementwise|multi_tensor_apply", "elementwise"),
    (
        r"^triton_(red|per|spl)_|reduce_|softmax|norm(?!al)|^bn_|^ln_[fb]wd|gammabeta|moments",
        "reduction",
    ),
    (r"gemm|gemv|matmul|conv(?!ert)|cutlass|xmma|nvjet|cijk_|splitk|^bmm_", "matmul"),
    (r"scudnn|winograd|[dw]grad|fprop", "matmul"),
    (r"^mem(cpy|set)\b|transpose|permute|nchwto|nhwcto|copy|gather|scatter|cache", "movement"),
    (r"act_and_mul|silu|swiglu|gelu|rotary|tensorop|dropout", "elementwise"),
    (r"_pool|scan(init)?kernel|reducebykey|histogram|embedding_\w*(for|back)ward", "reduction"),
    (
        r"cast_(to|back)|quanti[sz]e|fp8_quant|_to_fp8|fp8\w*_to_|index(select|_)|bucketize",
        "movement",
    ),
)


#: Ops of PyTorch whose class ``aten_class`` does not need, by the beginnings of their names.
_OTHER_OPS: Final = (
    (
        r"_?upsample_.*_backward|.*_pool\dd|.*_loss|_embedding_bag|multinomial|cum(max|min)",
        "reduction",
    ),
    (
        r"nonzero|masked_select|index_(fill|copy)|take|put|diag_embed|im2col|col2im|pixel_",
        "movement",
    ),
    (r"_?upsample_|grid_sampler|_(un)?pack_padded", "movement"),
    (r"normal|uniform|exponential|random|rand|complex|polar|_amp_", "elementwise"),
)


def class_of_kernel(label: str) -> str:
    """The class that the name of a kernel shows, "other" if none.

    Args:
        label: the kernel's name, possibly after that of its op, ``op: kernel``.
    """
    name = label.rpartition(": ")[2].lower()
    return next((kind for text, kind in _BY_KERNEL if re.search(text, name)), "other")


def kernel_classes(graph: WorkloadGraph) -> NDArray[np.int64]:
    """The class of each node, shape [nodes]; meaningless for nodes that do not compute."""
    by_role = np.full(max(Role) + 1, KERNELS.index("other"), np.int64)
    for role, name in _BY_ROLE.items():
        by_role[role] = KERNELS.index(name)
    by_name = np.array([_of_name(*item) for item in graph.tables.named_heroes()] or [0], np.int64)
    found = np.where(graph.role == Role.OPAQUE, by_name[graph.op], by_role[graph.role])
    multiplies = np.zeros(len(graph), np.bool_)
    owner = row_of_entry(graph.work_ptr)
    multiplies[owner[graph.work_unit == Unit.MATMUL]] = True
    found[multiplies] = KERNELS.index("matmul")
    found[is_attention(graph)] = KERNELS.index("attention")
    return found


def shown_classes(graph: WorkloadGraph) -> NDArray[np.int64]:
    """The class of each node by which a step is explained, an index into ``SHOWN``, shape [nodes].

    An op of PyTorch has the same class in a capture as in a profile, that of its name: a cast is a
    copy, although a capture shows that it converts each element.  Kernels of unknown ops, as in
    CUDA graphs, have that of their own name.
    """
    found = kernel_classes(graph)
    other = KERNELS.index("other")
    names = graph.tables.ops
    of_op = np.array([_of_torch(name) for name in names] or [-1], np.int64)[graph.op]
    named_so = (of_op >= 0) & (found != KERNELS.index("matmul"))
    found = np.where(named_so & ~is_attention(graph), of_op, found)
    of_kernel = np.array([SHOWN.index(class_of_kernel(name)) for name in names] or [0], np.int64)
    return np.where(found == other, of_kernel[graph.op], found)


def fine_classes(graph: WorkloadGraph) -> NDArray[np.int64]:
    """The class of each node as shown, for compiled fusions that of their hero: an index into
    ``FINE``.
    """
    heroes = [hero if hero in FINE else "" for _, hero in graph.tables.named_heroes()]
    by_hero = np.array([FINE.index(hero) if hero else -1 for hero in heroes] or [-1], np.int64)
    found = shown_classes(graph)
    return np.where(by_hero[graph.op] >= len(SHOWN), by_hero[graph.op], found)


def is_attention(graph: WorkloadGraph) -> NDArray[np.bool_]:
    """Which nodes are fused attention kernels, by their names in all frameworks."""
    return named(graph, _ATTENTION)


def is_compiled(graph: WorkloadGraph) -> bool:
    """Whether a compiler changed a step of PyTorch: it has Inductor's kernels, or was opened for
    rules that fuse, which leaves products of StableHLO in the place of ``aten.mm``.
    """
    made = [name.startswith(INDUCTOR) or name == "dot_general" for name in graph.tables.ops]
    return bool(np.array(made or [False])[graph.op].any())


def named(graph: WorkloadGraph, words: tuple[str, ...]) -> NDArray[np.bool_]:
    """Which kernels have one of these words in their op's name, shape [nodes].

    A kernel that Inductor made is none of the ops that its name lists, because it fuses them;
    unless it fuses them into the kernel of one of them, for which it has a template.
    """
    ops = [
        (name.startswith(_TEMPLATE) or not (name.startswith(INDUCTOR) or is_fused_in_cpp(name)))
        and any(word in name.lower() for word in words)
        for name in graph.tables.ops
    ]
    found: NDArray[np.bool_] = np.array(ops or [False])[graph.op]
    found &= graph.kind == NodeKind.COMPUTE
    return found


def _of_torch(op: str) -> int:
    """The class of an op of PyTorch, possibly before its kernel's name; -1 if it is none."""
    name = op.partition(": ")[0]
    if not name.startswith(("aten.", "aten::", "fsdp.", "fsdp::")):
        return -1
    base = base_name(name)
    named_so = (kind for text, kind in _OTHER_OPS if re.match(text, base))
    found = _BY_CLASS.get(aten_class(name)) or next(named_so, None)
    return -1 if found is None else KERNELS.index(found)


def _of_name(op: str, hero: str) -> int:
    """The class of a compiled fusion, else the class by name: ``aten.add.Tensor``, ``aten::add:
    kernel`` (a kernel that ran for it), or ``inductor.triton_red_fused_sum_0``.
    """
    if hero:
        return KERNELS.index(_BY_HERO.get(hero, "other"))
    if op.startswith(INDUCTOR):
        kind = op.removeprefix(INDUCTOR).removeprefix("triton_").partition("_")[0]
        return KERNELS.index(_OF_INDUCTOR.get(kind, "other"))
    name = op.partition(": ")[0]
    plain = name.startswith(("aten.", "aten::")) or is_fused_in_cpp(name)
    known = aten_class(name) if plain else OpClass.COPY if is_copy(op) else OpClass.OTHER
    return KERNELS.index(_BY_CLASS.get(known, "other"))
