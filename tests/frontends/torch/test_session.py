"""Whole captures of one rank: what each parallelism communicates, counted by hand.

Longer than 300 lines because each way to be parallel has its step and its own count by hand.
"""

from __future__ import annotations

import inspect
from collections import Counter
from functools import partial

import pytest

torch = pytest.importorskip("torch")

from flint.cli.truer_level import EAGER  # noqa: E402
from flint.errors import FlintError, UsageError  # noqa: E402
from tests.frontends.torch import small_models as small  # noqa: E402
from tests.frontends.torch.in_child import record_in_child, recorded  # noqa: E402
from tests.support.shared import quick_rows  # noqa: E402

BLOCK = 4 * 32 * 32 + 2 * 64 * 32 + 4 * 32  # attention, MLP, two norms with bias
EMBEDDING = HEAD = 64 * 32


def communications(recording, phase=None):
    return Counter(
        (op.name.split(".")[1], recording.groups[op.group].ranks, op.reduction)
        for op in recording.ops
        if op.group >= 0 and phase in (None, op.phase)
    )


def test_one_rank_communicates_nothing():
    recording = recorded(small.step, small.plain, (1,), ("dp",))
    assert not communications(recording) and not recording.groups
    # Per block 6 products, and the head; each again for the gradients of its input and weight.
    products = Counter(op.phase for op in recording.ops if op.name == "aten.mm.default")
    assert products == {"forward": 13, "backward": 26}


def test_fsdp_gathers_and_scatters_each_layer():
    recording = recorded(small.step, small.sharded, (4,), ("dp",), 2)
    ranks = (0, 1, 2, 3)
    assert communications(recording, "forward") == {("_allgather_base_", ranks, ""): 3}
    # The root (embedding and head) stays gathered; averages in fp32 as the policy says.
    assert communications(recording, "backward") == {
        ("_allgather_base_", ranks, ""): 2, ("_reduce_scatter_base_", ranks, "avg"): 3,
    }  # fmt: skip
    gathers = [op for op in recording.ops if op.name == "c10d._allgather_base_.default"]
    assert [op.writes[0].dtype for op in gathers] == ["bfloat16"] * 5
    sizes = [op.writes[0].shape[0] for op in gathers]
    assert sizes == [EMBEDDING + HEAD, BLOCK, BLOCK, BLOCK, BLOCK]
    scattered = [op for op in recording.ops if op.name == "c10d._reduce_scatter_base_.default"]
    assert [op.args[1].shape[0] for op in scattered] == [BLOCK, BLOCK, EMBEDDING + HEAD]
    assert {op.args[1].dtype for op in scattered} == {"float32"}


def test_fsdp_communicates_on_separate_streams():
    recording = recorded(small.step, small.sharded, (4,), ("dp",), 2)
    streams = {}
    for op in recording.ops:
        if op.group >= 0:
            streams.setdefault(op.name, set()).add(op.stream)
    gather, scatter = streams.values()
    assert len(gather) == len(scatter) == 1 and gather != scatter
    assert 0 not in gather | scatter
    # Whoever uses what was gathered waits for it.
    for number, op in enumerate(recording.ops):
        if op.name == "fsdp.split_with_sizes_copy.default":
            (gathered,) = [n for n in op.after if recording.ops[n].stream in gather]
            assert gathered < number


def test_every_shard_is_as_large_as_the_rank_says():
    recording = recorded(small.step, small.sharded, (4,), ("dp",), 2)
    held = {item.name: item.view.shape for item in recording.inputs if item.role == "parameter"}
    assert held["model.embedding.weight"] == (64 // 4, 32)
    assert held["model.layers.1.w2.weight"] == (32 // 4, 64)
    assert len(held) == 2 + 2 * 10
    states = [item.name for item in recording.inputs if item.role == "optimizer state"]
    assert "optimizer.layers.0.attention.wq.weight.exp_avg_sq" in states
    assert len(states) == 2 * len(held)


def test_hsdp_reduces_over_replicas_what_it_scattered():
    recording = recorded(small.step, small.sharded, (2, 4), ("replicate", "shard"), 5)
    shard, replicas = (4, 5, 6, 7), (1, 5)
    assert communications(recording) == {
        ("_allgather_base_", shard, ""): 5,
        ("_reduce_scatter_base_", shard, "avg"): 3,
        ("allreduce_", replicas, "avg"): 3,
    }


def test_tensor_and_sequence_parallelism_with_fsdp():
    recording = recorded(small.step, small.sharded, (2, 2), ("dp", "tp"), 1)
    tp = (0, 1)
    # Forward: the embedding's partial sums are scattered; per block two gathers and two scatters
    # around attention and MLP; the head gathers its input, and its output, which is sharded.
    assert communications(recording, "forward")["all_gather_into_tensor", tp, ""] == 2 * 2 + 2
    assert communications(recording, "forward")["reduce_scatter_tensor", tp, "sum"] == 2 * 2 + 1
    assert communications(recording)["_allgather_base_", (1, 3), ""] == 5
    # Each of the two norms' weight and bias is replicated: its gradient is a sum over tp.
    assert communications(recording, "backward")["all_reduce", tp, "sum"] == 2 * 2 * 2


def data_parallel(mesh):
    from torch.nn.parallel import DistributedDataParallel

    model = small.Transformer().to("cuda")
    wrapped = DistributedDataParallel(model, device_ids=[torch.cuda.current_device()])
    return wrapped, torch.optim.SGD(wrapped.parameters(), lr=0.1), small.batch()


def test_ddp_reduces_its_buckets():
    recording = recorded(small.step, data_parallel, (4,), ("dp",), 1)
    reduced = [op for op in recording.ops if op.name == "c10d.allreduce_.default"]
    # All parameters fit into DDP's first bucket of 1 MiB, rebuilt after the first step.
    assert [op.writes[0].shape for op in reduced] == [(EMBEDDING + HEAD + 2 * BLOCK,)]
    assert {op.reduction for op in reduced} == {"sum"}
    names = {item.name for item in recording.inputs if item.role == "parameter"}
    assert "model.layers.0.w1.weight" in names


def pipeline(kind, per_rank=1, shard=False):
    key = kind, per_rank, shard
    return _PIPELINES.setdefault(
        key, partial(small.stages, kind=kind, per_rank=per_rank, shard=shard)
    )


_PIPELINES: dict = {}


def messages(recording, name, phase, peer=None):
    return [
        op
        for op in recording.ops
        if op.name == f"c10d.{name}.default" and op.phase == phase and peer in (None, op.peer)
    ]


SCHEDULES = [("GPipe", 1), ("1F1B", 1), ("Interleaved1F1B", 2)]


@pytest.mark.parametrize("kind,per_rank", quick_rows(SCHEDULES))
def test_neighbouring_stages_send_what_the_other_receives(kind, per_rank):
    both = [
        recorded(small.pipeline_step, pipeline(kind, per_rank), (2,), ("pp",), rank)
        for rank in (0, 1)
    ]
    borders = 2 * per_rank - 1  # between stages, each crossed by 4 microbatches and back
    counts = Counter()
    for here, there in ((0, 1), (1, 0)):
        for phase in ("forward", "backward"):
            sent = messages(both[here], "send", phase, there)
            received = messages(both[there], "recv_", phase, here)
            assert [op.args[0][0].shape for op in sent] == [op.writes[0].shape for op in received]
            counts[phase] += len(sent)
    assert counts == {"forward": 4 * borders, "backward": 4 * borders}
    assert {op.args[0][0].shape for op in messages(both[0], "send", "forward")} == {(2, 16, 32)}


@pytest.mark.thorough
def test_a_stage_names_its_part_of_the_model():
    recording = recorded(small.pipeline_step, pipeline("1F1B"), (2,), ("pp",), 1)
    names = {item.name for item in recording.inputs if item.role == "parameter"}
    assert "stage[1].layers.3.w1.weight" in names and "stage[1].head.weight" in names
    assert {op.module.split(".")[1] for op in recording.ops if "layers" in op.module} == {"2", "3"}


@pytest.mark.thorough
def test_a_sharded_pipeline():
    recording = recorded(small.pipeline_step, pipeline("1F1B", shard=True), (2, 2), ("pp", "dp"), 3)
    assert len(messages(recording, "recv_", "forward", 1)) == 4  # rank 3 = (1, 1), from (0, 1)
    scattered = [op for op in recording.ops if op.name == "c10d._reduce_scatter_base_.default"]
    # Gradients of the microbatches are added up and reduced once, for each layer and the root.
    assert len(scattered) == 3 and {op.phase for op in scattered} == {"backward"}
    assert {recording.groups[op.group].ranks for op in scattered} == {(2, 3)}


@pytest.mark.thorough
def test_a_pipeline_of_three_learns_shapes_through_all_stages():
    recording = recorded(small.pipeline_step, pipeline("GPipe"), (3,), ("pp",), 2)
    assert {op.writes[0].shape for op in messages(recording, "recv_", "forward", 1)} == {
        (2, 16, 32)
    }


def ring(mesh):
    model = small.Transformer().to("cuda", dtype=torch.bfloat16)
    return model, torch.optim.AdamW(model.parameters()), small.batch(), mesh


def ring_step(model, optimizer, tokens, mesh):
    from torch.distributed.tensor.experimental import context_parallel

    with context_parallel(mesh, buffers=list(tokens), buffer_seq_dims=[1, 1]):
        small.step(model, optimizer, tokens)


def test_context_parallel_attention_is_a_ring():
    recording = recorded(ring_step, ring, (4,), ("cp",), 1)
    kernels = Counter(op.name.split(".")[1] for op in recording.ops if "_attention" in op.name)
    (name,) = (name for name in kernels if not name.endswith("_backward"))
    forward = kernels[name]
    assert forward == kernels[f"{name}_backward"]
    assert forward == 2 * 4  # 2 layers, one part of the sequence per rank
    lengths = {op.args[0].shape[2] for op in recording.ops if "_attention" in op.name}
    assert lengths <= {4, 2}  # 16 tokens over 4 ranks, and half of that where the mask cuts
    # The ranks compute as much, and together what causal attention of 16 tokens sees: per layer
    # 16 * 17 / 2 pairs of a query and a key, in each direction.
    pairs = Counter()
    for op in recording.ops:
        name = op.name.split(".")[1]
        if "_attention" in name:
            backward = name.endswith("_backward")
            rows, columns = (op.args[backward + place].shape[2] for place in (0, 1))
            causal = [*op.args, False][14] if backward else (*op.args, *2 * [False])[6]
            pairs[backward] += rows * (rows + 1) // 2 if causal else rows * columns
    assert pairs == {False: 2 * 16 * 17 // 2 // 4, True: 2 * 16 * 17 // 2 // 4}
    assert any(op.group >= 0 and op.module.endswith("attention") for op in recording.ops)


def failing(model, optimizer, tokens):
    output = model(tokens[0])
    return output.view(-1, 7)


def failing_setup(mesh):
    raise ValueError("no such file")


def reads_index(model, optimizer, tokens):
    return model(tokens[0])[: tokens[1].sum().item()]


@pytest.mark.parametrize(
    "step,setup,text,where",
    [
        (failing, small.plain, "view(-1, 7)", "RuntimeError"),
        (small.step, failing_setup, "no such file", "ValueError: no such file"),
        (reads_index, small.plain, ".item()", "an integer tensor's value is read"),
    ],
)
def test_an_error_names_the_users_line(step, setup, text, where):
    source = setup if setup is failing_setup else step
    lines, start = inspect.getsourcelines(source)
    (line,) = [start + i for i, content in enumerate(lines) if text in content]
    with pytest.raises(FlintError) as error:
        record_in_child(step, setup, (1,), ("dp",))
    assert f"test_session.py:{line}" in str(error.value)
    assert where in str(error.value)


def test_a_float_that_is_read_is_counted_with_its_line():
    def step(model, optimizer, tokens):
        small.step(model, optimizer, tokens).item()

    recording = record_in_child(step, small.plain, (1,), ("dp",))
    ((text, count),) = recording.warnings.items()
    assert "test_session.py" in text and "1.0" in text and count == 1


def test_arguments_that_do_not_fit_the_step():
    with pytest.raises(UsageError, match="setup's result does not fit the step"):
        record_in_child(small.step, lambda mesh: (1, 2), (1,), ("dp",))


def test_a_setting_that_there_is_not():
    with pytest.raises(UsageError, match="unknown setting colour"):
        record_in_child(small.step, small.plain, (1,), ("dp",), settings={"colour": "red"})


def test_arguments_without_setup_go_to_the_device():
    def step(model, x):
        return model(x)

    given = ((torch.nn.Linear(4, 4, bias=False), torch.ones(2, 4)), {})
    recording = record_in_child(step, None, (1,), ("dp",), arguments=given)
    assert [op.name for op in recording.ops] == ["aten.mm.default"]
    assert {item.role for item in recording.inputs} == {"parameter", "batch"}


def cuda_program(mesh):
    import torch.distributed as dist

    torch.cuda.set_device(0)
    torch.cuda.manual_seed_all(1)
    dist.init_process_group("nccl", rank=dist.get_rank(), world_size=dist.get_world_size())
    assert torch.cuda.is_available() and torch.cuda.get_device_name()
    assert torch.cuda.get_device_properties(0).total_memory > 0
    model = torch.nn.Linear(4, 4, device="cuda:0")
    return model, torch.ones(2, 4).cuda(non_blocking=True), torch.cuda.Stream()


def cuda_step(model, x, stream):
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        y = model(x)
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    return y.neg()


def test_programs_written_for_cuda_are_recorded_with_their_streams():
    recording = record_in_child(cuda_step, cuda_program, (2,), ("dp",), 1)
    product, negation = recording.ops
    assert (product.name, negation.name) == ("aten.addmm.default", "aten.neg.default")
    assert product.stream != negation.stream == 0
    assert negation.after == (0,)


def reading_setup(mesh):
    model, optimizer, tokens = small.plain(mesh)
    assert float(next(model.parameters()).sum()) == 1.0
    return model, optimizer, tokens


def test_a_value_that_setup_reads_is_reported_too():
    recording = record_in_child(small.step, reading_setup, (1,), ("dp",))
    ((text, count),) = recording.warnings.items()
    assert "float tensor's value is read" in text and count == 1


def test_no_op_is_only_a_name_for_others():
    """DTensor calls functions below autograd, where PyTorch leaves composite ops whole."""
    recording = recorded(ring_step, ring, (4,), ("cp",), 1)
    names = {op.name for op in recording.ops if op.name.startswith("aten.")}
    for name in names:
        _, packet, overload = name.split(".")
        op = getattr(getattr(torch.ops.aten, packet), overload)
        has = torch._C._dispatch_has_kernel_for_dispatch_key
        composite = has(op.name(), "CompositeImplicitAutograd")
        # silu_backward, say, is a composite for devices that have no kernel of their own.
        assert not composite or has(op.name(), "CUDA") or has(op.name(), "CPU"), name


def compiled(mesh):
    model, optimizer, tokens = small.plain(mesh)
    return torch.compile(model), optimizer, tokens


def test_compiled_code_is_recorded_as_eager_code_and_that_is_reported():
    recording = recorded(small.step, compiled, (1,), ("dp",))
    eager = recorded(small.step, small.plain, (1,), ("dp",))
    assert [op.name for op in recording.ops] == [op.name for op in eager.ops]
    ((text, _),) = recording.warnings.items()
    assert "torch.compile" in text and "test_session.py" in text and EAGER in text


def old_fsdp(mesh):
    from torch.distributed.fsdp import FullyShardedDataParallel

    model, _, tokens = small.plain(mesh)
    model = FullyShardedDataParallel(model)
    return model, torch.optim.AdamW(model.parameters()), tokens


def test_the_first_fsdp_gathers_the_whole_model_once_and_keeps_it_until_the_gradients_are_reduced():
    recording = recorded(small.step, old_fsdp, (2,), ("dp",))
    names = [op.name.split(".")[1] for op in recording.ops if op.group >= 0]
    assert [name for name in names if "scatter" in name or "gather" in name] == [
        "_allgather_base_", "_reduce_scatter_base_",
    ]  # fmt: skip


def test_views_of_a_copied_module_are_views_of_its_parameters():
    """An averaged model is one, and is written in place."""

    def setup(mesh):
        model = torch.nn.Linear(8, 8, device=mesh.device_type)
        average = torch.optim.swa_utils.get_ema_multi_avg_fn(0.99)
        return model, torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=average)

    def step(model, averaged):
        averaged.update_parameters(model)

    recording = record_in_child(step, setup, (1,), ("dp",))
    assert not any("detach" in op.name for op in recording.ops)
    names = {item.view.storage: item.name for item in recording.inputs}
    (average,) = [op for op in recording.ops if "lerp" in op.name]
    assert [names[view.storage] for view in average.writes] == [
        "averaged.module.weight", "averaged.module.bias",
    ]  # fmt: skip
    roles = {item.name: item.role for item in recording.inputs}
    assert roles["averaged.module.weight"] == "parameter"
