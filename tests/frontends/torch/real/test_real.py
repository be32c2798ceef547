"""Steps recorded on a fake cluster against the same steps in gloo processes that really run.

In the real processes the same recorder runs, on CPU tensors; and PyTorch's ExecutionTraceObserver,
which is not ours, in a further step.
"""

from __future__ import annotations

import functools
import json
import zlib
from collections import Counter

import pytest

torch = pytest.importorskip("torch")

from tests.frontends.torch.real.cases import CASES, MIXTURES  # noqa: E402
from tests.frontends.torch.real.comparison import DIFFERENCES, compared  # noqa: E402
from tests.frontends.torch.real.observed import collectives_of, observed_collectives, observed_ops  # noqa: E402
from tests.frontends.torch.real.processes import preload, run_faked, run_really  # noqa: E402
from tests.support.shared import quick  # noqa: E402

pytestmark = pytest.mark.xdist_group("torch-real")

ALL = {**CASES, **MIXTURES}
preload = pytest.fixture(scope="module", autouse=True)(preload)
#: For every run of the tests; tests/validation has DDP, test_session pipelines.
FAMILIES = ("plain", "FSDP2")


def real(name, rank):
    """What a rank really does."""
    return json.loads(zlib.decompress(_packed(run_really, name)[rank]))


def faked(name, rank):
    """What is recorded of it."""
    return json.loads(zlib.decompress(_packed(run_faked, name)[rank]))


@functools.cache
def _packed(run, name):
    """Rank -> what was seen, as bytes: the objects of all cases are 5 GB, in each fork again."""
    return {
        rank: zlib.compress(json.dumps(seen).encode(), level=1)
        for rank, seen in run(ALL[name]).items()
    }


every_case = pytest.mark.parametrize("name", quick(CASES, *FAMILIES))


@every_case
def test_every_op_is_the_one_that_really_runs(name):
    for rank in CASES[name].ranks:
        walk = compared(real(name, rank)["ops"], faked(name, rank)["ops"])
        # The names that stand for others and gloo's copies are few; most ops are equal as they are.
        assert walk.equal.total() > 10 * walk.explained.total()


@pytest.mark.parametrize("name", quick(ALL, *FAMILIES))
def test_collectives_are_those_that_pytorch_observed(name):
    for rank in ALL[name].ranks:
        found = collectives_of(faked(name, rank)["ops"])
        assert found == observed_collectives(real(name, rank)["trace"])


def products(ops):
    """Matrix products with the sizes of their operands, in order."""
    return [
        (op["name"], [item["view"][2] for item in op["args"] if isinstance(item, dict)])
        for op in ops
        if op["name"].startswith("aten.") and "mm" in op["name"].split(".")[1]
    ]


@pytest.mark.thorough
@pytest.mark.parametrize("name", MIXTURES)
def test_products_of_a_mixture_are_those_that_really_run(name):
    for rank in MIXTURES[name].ranks:
        found = products(faked(name, rank)["ops"])
        assert found == products(real(name, rank)["ops"])
        assert any("grouped_mm" in item for item, _ in found)


#: What a recorder that runs along changes: an op and its phase -> the one without it.
#: All are care for tensors of which a mode or a subclass may have a hold (isTensorSubclassLike in
#: PyTorch's TensorSubclassLikeUtils.h).
RECORDED = {
    # Where two gradients meet, the second is added to the first in place if nobody else holds
    # that; else the sum is a new tensor, by an op that reads and writes as much.
    ("aten::add", "backward"): "aten::add_",
    # So is the bias to the product of a linear layer, where the input is no matrix in memory.
    ("aten::add", "forward"): "aten::add_",
    # The gradient of x[i] is put into new zeros in place; else into a copy of them.
    ("aten::index_put", "backward"): "aten::_index_put_impl_",
}

#: Within vmap the observer sees mm, and inside of it the bmm that computes it; within addmm of dual
#: numbers the ops of its derivative.
_NESTED = ("gradients per sample", "forward derivatives")
UNRECORDED = [name for name in CASES if CASES[name].world == 1 and name not in _NESTED]


@pytest.mark.parametrize("name", quick(UNRECORDED, "plain"))
def test_every_op_is_one_that_pytorch_observed_unrecorded(name):
    """Of the real process: that a recorder runs along changes what ``RECORDED`` says."""
    ops = [op for op in real(name, 0)["ops"] if op["name"].startswith("aten.")]
    found = [(op["name"].rsplit(".", 1)[0].replace(".", "::"), op.get("phase")) for op in ops]
    names = {name for name, _ in found} | set(RECORDED.values())
    observed = observed_ops(real(name, 0)["trace"], names)
    assert len(found) == len(observed)
    pairs = zip(found, observed, strict=True)
    other = {(*ours, theirs) for ours, theirs in pairs if ours[0] != theirs}
    assert other <= {(*ours, theirs) for ours, theirs in RECORDED.items()}


@pytest.mark.thorough
def test_every_difference_is_still_needed():
    needed = Counter()
    for name, case in CASES.items():
        for rank in case.ranks:
            needed += compared(real(name, rank)["ops"], faked(name, rank)["ops"]).explained
    assert {item.reason for item in DIFFERENCES} == set(needed)


@pytest.mark.parametrize(
    "change",
    [
        lambda ops: ops.pop(next(i for i, op in enumerate(ops) if op["name"] == "aten.mm.default")),
        lambda ops: ops.insert(40, ops[40]),
        lambda ops: ops[_first(ops)].update(group=[0, 1]),
        lambda ops: ops[_first(ops)].update(reduction="max"),
        lambda ops: ops[_first(ops)]["writes"][0]["view"].__setitem__(1, 1),
        lambda ops: ops[_first(ops)]["args"][0]["view"].__setitem__(0, 0),
        lambda ops: ops[_first(ops)]["args"][0]["view"].__setitem__(4, "float64"),
    ],
    ids=["missing op", "op too many", "group", "reduction", "offset", "storage", "dtype"],
)
def test_a_change_of_one_op_is_found(change):
    ops = faked("FSDP2", 0)["ops"]
    change(ops)
    with pytest.raises(AssertionError, match="differs"):
        compared(real("FSDP2", 0)["ops"], ops)


def _first(ops):
    return next(i for i, op in enumerate(ops) if op["name"].startswith("c10d._reduce_scatter"))


PIPELINES = [name for name in CASES if "pp" in CASES[name].axes]


@pytest.mark.parametrize("name", quick(PIPELINES))
def test_every_message_that_is_sent_is_received(name):
    sent, received = Counter(), Counter()
    for rank in CASES[name].ranks:
        for op in faked(name, rank)["ops"]:
            if op["name"] in ("c10d.send.default", "c10d.recv_.default"):
                (item,) = op["args"][0]
                looks = tuple(item["view"][2]), item["view"][4], op["tag"]
                if "send" in op["name"]:
                    sent[rank, op["peer"], looks] += 1
                else:
                    received[op["peer"], rank, looks] += 1
    assert sent == received and sent
