"""ResNet-50 under DDP: published sizes, and a real two-GPU run op by op."""

from __future__ import annotations

import collections
import functools
import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from flint.graph.graph import Phase  # noqa: E402
from flint.graph.work import Unit  # noqa: E402
from flint.models.torch.resnet import RESNET50, TINY, ResNet, train_tiny, training  # noqa: E402

pytestmark = [pytest.mark.xdist_group("torch-resnet"), pytest.mark.thorough]

#: What a real run issued; origin and form: tests/data/kineto/README.md.
REAL = json.loads((Path(__file__).parents[2] / "data/kineto/resnet50_ddp.json").read_text())

#: The real run's settings, which follow from its trace as that README says.
RUN = replace(RESNET50, images=32, soft=True, decay=0.0, autocast=None)

#: Our name of an op -> the profiler's, where it differs by more than the overload.
SAME = {
    "aten.convolution": "cudnn_convolution",  # the profiler names the backend's op
    "aten.native_batch_norm": "cudnn_batch_norm",
    "aten.native_batch_norm_backward": "cudnn_batch_norm_backward",
    "aten.relu_": "clamp_min_",  # the CUDA kernel of relu_
    "aten.ones_like": "fill_",  # the kernel that ones_like launches
    "all_reduce": "allreduce",
    "collective_broadcast": "broadcast",
}

#: Ops whose kernels' grids tell how many elements they had.
MEASURED = {"relu_", "threshold_backward", "add_", "mul", "neg", "div", "ones_like"}
DTYPES = {"f32": ("Float", 4), "i64": ("Long", 8)}


@functools.cache
def graph():
    return training(RUN).capture().graph


def launches():
    """Nodes that are a kernel or a collective of eager PyTorch, in issue order."""
    return [n for n in graph() if n.category == "communication" or n.op.startswith("aten.")]


def profilers_name(node):
    name = node.op.rsplit(".", 1)[0]
    if name == "aten.add" and node.source.phase == Phase.BACKWARD:
        # Where two gradients meet, autograd adds in place to one that nobody else holds, but never
        # while a dispatch mode is on, as every recording has one (isTensorSubclassLike in PyTorch's
        # TensorSubclassLikeUtils.h): here the sum is a new tensor.  The kernel is the same and
        # reads and writes as much.
        return "add_"
    return SAME.get(name, name.removeprefix("aten."))


@pytest.mark.parametrize(
    ("blocks", "published"),
    # num_params of torchvision's ResNet50_Weights, ResNet101_Weights, ResNet152_Weights.
    [((3, 4, 6, 3), 25_557_032), ((3, 4, 23, 3), 44_549_160), ((3, 8, 36, 3), 60_192_808)],
)
def test_parameters_are_as_many_as_published(blocks, published):
    with torch.device("meta"):
        model = ResNet(replace(RESNET50, blocks=blocks))
    assert sum(parameter.numel() for parameter in model.parameters()) == published


def test_all_ops_of_the_real_run_in_its_order():
    """906 launches: kernels, copies, five all-reduces and two broadcasts between them."""
    assert [profilers_name(node) for node in launches()] == [op.split()[0] for op in REAL["ops"]]


def test_collectives_of_the_real_run():
    """Buckets of gradients in the order in which they fill up, and buffers, with their types."""
    ours = []
    for node in launches():
        if node.category == "communication":
            sent = node.communication
            name, size = DTYPES[sent.dtypes[0]]
            ours.append(f"{profilers_name(node)} {name} {sum(sent.operand_bytes) // size}")
    theirs = [op for op in REAL["ops"] if len(op.split()) == 3]
    assert ours == theirs
    assert [op for op in theirs if op.startswith("allreduce")] == [
        f"allreduce Float {count}" for count in (2049000, 7875584, 6563840, 6637568, 2431040)
    ]


def test_buckets_hold_every_gradient_once():
    sizes = [
        sum(node.communication.operand_bytes) // 4 for node in launches() if node.op == "all_reduce"
    ]
    assert sum(sizes) == 25_557_032


def test_sizes_of_element_wise_kernels_of_the_real_run():
    """Activations, sums of gradients, and gradients on their way into a bucket."""
    compared = collections.Counter()
    for node, op in zip(launches(), REAL["ops"], strict=True):
        name, *size = op.split()
        if len(size) != 1 or not size[0].isdigit():
            continue
        elements = math.prod(node.result_types[0].shape)
        assert math.ceil(elements / 512) * 512 == int(size[0]), (node.op, name)
        compared[name] += 1
    # One ReLU behind every norm but those of the four ways around, which have none; of the sums
    # 53 count batches, 16 join a block's two ways and 16 their gradients.  Of the 163 products
    # 161 put a gradient into its bucket, and the loss's backward product reads a broadcast number,
    # with another kind of kernel.
    assert compared == {
        "clamp_min_": 49, "threshold_backward": 49, "add_": 85, "mul": 162, "neg": 2, "div": 2,
        "fill_": 1,
    }  # fmt: skip


def products(node):
    return [item.dims for item in node.work.items if item.unit == Unit.MATMUL]


def test_convolutions_of_the_real_run_forward_and_both_ways_back():
    """The first convolution's gradient goes to its weights only: images are not learned."""
    forward = [n for n in launches() if n.op == "aten.convolution.default"]
    back = [n for n in launches() if n.op == "aten.convolution_backward.default"]
    real = REAL["convolution_kernels"]
    assert {n.source.phase for n in forward} == {Phase.FORWARD}
    assert {n.source.phase for n in back} == {Phase.BACKWARD}
    assert sum(len(products(n)) for n in forward) == real["forward"] == 53
    assert sum(len(products(n)) for n in back) == real["data"] + real["weights"] == 52 + 53
    theirs = [op.split()[1] for op in REAL["ops"] if op.startswith("convolution_backward")]
    assert [len(products(n)) for n in back] == [len(op.split("+")) for op in theirs]


def test_convolutions_compute_backwards_twice_what_they_do_forwards():
    """Towards the data and towards the weights; the first one towards its weights only."""

    def work(node):
        return sum(item.flops for item in node.work.items if item.unit == Unit.MATMUL)

    forward = [work(n) for n in launches() if n.op == "aten.convolution.default"]
    back = [work(n) for n in launches() if n.op == "aten.convolution_backward.default"]
    assert sum(back) == 2 * sum(forward) - forward[0]


def test_the_classifiers_gemms_of_the_real_run():
    gemms = [n for n in launches() if n.op.startswith(("aten.addmm.", "aten.mm."))]
    assert [n.op.split(".")[1] for n in gemms] == ["addmm", "mm", "mm"]
    assert REAL["counts"]["addmm"] == 1
    assert REAL["counts"]["mm"] == 2
    # scores (32, 1000) = x (32, 2048) w; then dx = dy w and dw = dy' x.
    assert [sorted(products(n)[0][1:]) for n in gemms] == [[32, 1000, 2048]] * 3


def test_a_collective_overlaps_the_backward_pass():
    """No convolution waits for a bucket, every copy out of a bucket does."""
    nodes = launches()
    reduced = [n.index for n in nodes if n.op == "all_reduce"]
    waiting = set(reduced)  # the all-reduces and whatever comes after one
    for node in graph():
        if node.index not in waiting and graph().predecessors(node.index) & waiting:
            waiting.add(node.index)
    after = [n for n in nodes if n.index in waiting and n.index not in reduced]
    assert {n.op.rsplit(".", 1)[0] for n in after} == {
        "aten.copy_", "aten._foreach_mul_", "aten._foreach_add_"
    }  # fmt: skip
    assert sum(n.op == "aten.copy_.default" for n in after) == 161


@pytest.mark.thorough
def test_without_a_broadcast_of_buffers_there_is_none():
    kinds = kinds_of(replace(TINY, buffers=False))
    assert "collective_broadcast" not in kinds
    assert kinds["all_reduce"] == kinds_of(TINY)["all_reduce"]


def kinds_of(config):
    return collections.Counter(node.op for node in training(config).capture().graph)


@pytest.mark.thorough
def test_gradients_as_views_of_buckets_are_not_copied_back():
    kinds = kinds_of(replace(TINY, bucket_view=True, buffers=False))
    assert kinds["aten.copy_.default"] == 0


@pytest.mark.thorough
def test_more_ranks_change_no_program():
    small, large = (train_tiny.at(mesh=(size,)).capture() for size in (2, 4096))
    assert len(small.programs) == len(large.programs) == 1
    assert [n.op for n in small.graph] == [n.op for n in large.graph]
    assert {c.groups.size for c in large.communicators} == {4096}


@pytest.mark.thorough
def test_bfloat16_convolutions_under_autocast():
    workload = training(replace(TINY, autocast=torch.bfloat16)).capture()
    convolutions = [n for n in workload.graph if "convolution" in n.op]
    assert convolutions
    assert {i.dtype for n in convolutions for i in n.work.items if i.unit == Unit.MATMUL} == {
        "bf16"
    }
