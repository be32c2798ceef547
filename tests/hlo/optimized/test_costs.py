"""FLOPs and bytes of every kernel of compiled steps against XLA's own cost analysis.

Equal, but where a rule of ``DIFFERENCES`` says why not.  Each is a property of the instruction (not
of our numbers) with the sign that the difference must then have; ``test_fusions.py`` derives the
numbers of each by hand.
"""

from __future__ import annotations

import collections

import pytest
from jaxlib import xla_client

from tests.hlo.optimized.by_hand import of_custom_call, of_custom_call_inside
from tests.hlo.optimized.single import EXCHANGES, Kernel, kernels, load, ours, xlas
from tests.support.shared import quick

MODULES = (
    "cpu_llama", "cpu_resnet", "gpu_conditional", "gpu_decode_cublas", "gpu_dynamic_loop",
    "gpu_library", "gpu_llama", "gpu_moe", "gpu_pipeline", "gpu_resnet", "tpu_library",
    "tpu_llama", "tpu_moe", "tpu_pipeline",
)  # fmt: skip


def contains(*opcodes: str):
    return lambda kernel: any(i.opcode.startswith(opcodes) for i in kernel.called)


def is_a(*opcodes: str):
    return lambda kernel: kernel.opcode in opcodes


CALL = "XLA knows nothing of a custom call (-1)"
CALL_INSIDE = "a custom call inside counts -1"

#: Rule -> what our numbers must lie between where XLA has none.
UNKNOWN_TO_XLA = {CALL: of_custom_call, CALL_INSIDE: of_custom_call_inside}

#: Rule -> (which kernels, whether FLOPs may differ, whether ours may be more than XLA's bytes).
DIFFERENCES = {
    CALL: (is_a("custom-call"), True, True),
    CALL_INSIDE: (contains("custom-call"), True, True),
    "a fused collective is a communication": (contains(*EXCHANGES), True, False),
    "a gather reads the rows it takes": (contains("gather"), False, False),
    "a scatter updates in place": (contains("scatter"), False, False),
    "accesses behind a bitcast count": (contains("bitcast"), False, False),
    "a nested fusion is looked into": (contains("fusion"), False, True),
    "a bitcast-convert is a view": (is_a("bitcast-convert"), True, False),
}


def rule_of(kernel: Kernel) -> str | None:
    for name, (applies, _, _) in DIFFERENCES.items():
        if applies(kernel):
            return name
    return None


@pytest.fixture(scope="module")
def client():
    return xla_client.make_cpu_client()


@pytest.mark.parametrize("name", quick(MODULES, "gpu_moe", "cpu_llama", "tpu_pipeline"))
def test_every_kernel_costs_as_much_as_in_xla(name, client):
    found = collections.Counter()
    for kernel in kernels(load(name)):
        theirs, mine = xlas(kernel, client), ours(kernel)
        if theirs == mine:
            found["equal"] += 1
            continue
        rule = rule_of(kernel)
        assert rule is not None, (kernel.name, theirs, mine)
        if rule in UNKNOWN_TO_XLA:
            least, most = UNKNOWN_TO_XLA[rule](kernel)
            what = (kernel.name, rule, least, mine, most)
            assert theirs.flops <= 0, what
            assert least.flops <= mine.flops <= most.flops, what
            assert least.bytes <= mine.bytes <= most.bytes, what
            found[rule] += 1
            continue
        _, flops_may_differ, may_be_more = DIFFERENCES[rule]
        assert flops_may_differ or theirs.flops == mine.flops, (kernel.name, rule, theirs, mine)
        assert may_be_more or mine.bytes <= theirs.bytes, (kernel.name, rule, theirs, mine)
        found[rule] += 1
    assert found["equal"] > sum(found.values()) // 2


def test_flops_of_compiled_models_are_xlas_but_for_custom_calls(client):
    for name in ("cpu_llama", "gpu_llama", "gpu_moe", "gpu_pipeline"):
        plain = [k for k in kernels(load(name)) if k.opcode != "custom-call"]
        assert [ours(k).flops for k in plain] == [xlas(k, client).flops for k in plain]
