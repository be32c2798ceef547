"""What compiled fusions do: by hand, and as XLA's GPU backend names what it made for an emitter.

XLA calls a fusion by its emitter and the ops of its roots: ``input_reduce_fusion`` runs a
reduction's loop, ``input_transpose_fusion`` a transpose's, ``loop_...`` one over elements.
"""

from __future__ import annotations

from collections import Counter

import pytest

import flint
from flint.cost.classes import KERNELS, kernel_classes
from flint.workload.inspection import summarise
from tests.hlo.optimized.single import FOLDER
from tests.hlo.optimized.text import graph_of
from tests.support.shared import quick

#: Part of a name that XLA gives -> what such a fusion may do.  A loop's root is never what decides.
EMITTERS = {
    "input_scatter": {"scatter"},
    "input_concatenate": {"concatenate"},
    "input_transpose": {"transpose"},
    "input_select_transpose": {"transpose"},
    "input_reduce": {"reduction"},
    "input_add_reduce": {"reduction"},
    "input_convert_reduce": {"reduction"},
    "gemm_fusion": {"gemm", "gemm epilogue"},
    "loop_dynamic_update_slice": {"update"},
    "loop_add_": {"elementwise", "reduction"},  # a few rows are reduced in a loop
    "loop_broadcast": {"elementwise", "movement"},
}


def heroes(workload):
    found = Counter()
    for program in workload.programs:
        for graph, _ in program.graph.walk():
            named = list(graph.tables.named_heroes())
            found.update(named[op] for op in graph.op.tolist() if named[op][1])
    return found


@pytest.mark.parametrize(
    "name", quick(["llama", "8b", "moe", "resnet", "remat", "pipeline", "decode_cublas"], "llama")
)
def test_fusions_do_what_xla_made_them_for(name):
    found = heroes(flint.convert(FOLDER / f"gpu_{name}.hlo.pb.gz", trusted=True))
    told = [
        (kernel, hero, wanted)
        for kernel, hero in found
        for part, wanted in EMITTERS.items()
        if kernel.startswith(part)
    ]
    assert len(told) > 3
    assert [item for item in told if item[1] not in item[2]] == []


def test_no_fusion_of_a_tpu_is_other():
    workload = flint.convert(FOLDER / "tpu_llama.hlo.pb.gz", trusted=True)
    of_tpu = {hero for (name, hero), _ in heroes(workload).items() if name == "fusion"}
    assert of_tpu >= {"convolution", "reduction", "elementwise"}
    shown = {row.does for row in summarise(workload).programs[0].ops if row.op == "fusion"}
    assert shown == of_tpu


X = "  x = f32[64,32] parameter(0)\n"
Z = "  z = f32[] constant(0)\n"
BODIES = {
    "elementwise": ("f32[64,32]", X + "  ROOT e = f32[64,32] exponential(x)"),
    "movement": ("f32[8,32]", X + "  ROOT s = f32[8,32] slice(x), slice={[0:8],[0:32]}"),
    "reduction": (
        "f32[64]",
        X + Z + "  m = f32[64,32] multiply(x, x)\n  r = f32[64] reduce(m, z), dimensions={1}, "
        "to_apply=add\n  ROOT e = f32[64] sqrt(r)",
    ),
    "transpose": (
        "f32[32,64]",
        X + "  m = f32[64,32] negate(x)\n  t = f32[32,64] transpose(m), dimensions={1,0}\n"
        "  ROOT a = f32[32,64] add(t, t)",
    ),
    "concatenate": (
        "f32[128,32]",
        X + "  n = f32[64,32] negate(x)\n  ROOT c = f32[128,32] concatenate(x, n), dimensions={0}",
    ),
    "softmax": (
        "f32[64,32]",
        X + Z + "  e = f32[64,32] exponential(x)\n  r = f32[64] reduce(e, z), dimensions={1}, "
        "to_apply=add\n  b = f32[64,32] broadcast(r), dimensions={0}\n"
        "  ROOT d = f32[64,32] divide(e, b)",
    ),
    "gemm": (
        "f32[64,64]",
        X + "  ROOT d = f32[64,64] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={1}",
    ),
    "gemm epilogue": (
        "f32[64,64]",
        X + "  d = f32[64,64] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={1}\n"
        "  ROOT t = f32[64,64] tanh(d)",
    ),
}
CLASSES = {
    "elementwise": "elementwise", "movement": "movement", "reduction": "reduction",
    "transpose": "movement", "concatenate": "movement", "softmax": "reduction", "gemm": "matmul",
    "gemm epilogue": "matmul",
}  # fmt: skip


@pytest.mark.parametrize("hero", BODIES)
def test_a_fusion_is_identified_by_its_hero(hero):
    result, body = BODIES[hero]
    graph = graph_of(
        f"fused {{\n{body}\n}}\nENTRY m {{\n{X}"
        f"  ROOT f = {result} fusion(x), kind=kLoop, calls=fused\n}}"
    )
    [node] = range(len(graph))
    assert graph.tables.heroes[graph.op[node]] == hero
    assert KERNELS[kernel_classes(graph)[node]] == CLASSES[hero]
