"""What a program sees: real tensors on the host, a device called cuda, ranks as text."""

from __future__ import annotations

import functools
import textwrap

import pytest

pytest.importorskip("torch")
import flint.frontends.torch.programs.rank  # noqa: F401  # here, not in every child
from flint import registry
from flint.host.child_processes import Limits
from flint.host.tasks import run_all
from flint.launching.child import be_program
from flint.launching.program import Cluster, Program, ProgramRequest


def test_tensors_of_the_host_have_values_those_of_the_device_have_sizes(said):
    found = said("""
        order = torch.randperm(8)
        moved = order.cuda()
        weight = torch.nn.Linear(10**6, 10**6).weight       # 4 TB
        total, drawn = torch.ones(2, 3).cuda().sum(), torch.randn(2, device="cuda").sum()
        say(sorted(order.tolist()), moved.sum().item(), list(weight.shape), total.item(),
            (total * drawn).item())
    """)
    # Numbers that came from the host are known; another float is read as 1.0.
    assert found == [list(range(8)), 28, [10**6, 10**6], 6.0, 1.0]


def test_what_the_device_writes_to_the_host_is_not_known(said):
    found = said("""
        host = torch.zeros(2)
        host.copy_(torch.randn(2, device="cuda"))
        say(host[0].item(), host.tolist())
    """)
    assert found == [1.0, [1.0, 1.0]]


def test_a_policy_acts_before_it_is_trained(said):
    """Its distribution takes what it is given; of what it chooses from, the first is assumed."""
    found = said("""
        class Policy(torch.nn.Linear):
            def forward(self, x):
                return torch.distributions.Categorical(logits=super().forward(x))
        policy = Policy(4, 2).cuda()
        with torch.no_grad():
            say([policy(torch.ones(1, 4).cuda()).sample().item() for _ in range(4)])
    """)
    assert found == [[0, 0, 0, 0]]


def test_an_image_that_is_shown_is_black(said):
    found = said("""
        image = torch.rand(2, 2, device="cuda").mul(255).to("cpu", torch.uint8)
        say(image.numpy().tolist(), image.to(torch.int64).numpy().tolist())
    """)
    assert found == [[[0, 0], [0, 0]], [[1, 1], [1, 1]]]  # other numbers as .item() gives them


def test_the_device_is_called_cuda(said):
    found = said("""
        device = torch.device("cuda", 1)
        x = torch.zeros(2, device=device)
        say(device.type, str(device)[:5], x.is_cuda, x.device.type, x.device == device, x.type(),
            torch.cuda.device_count(), torch.cuda.get_device_capability(),
            "A100" in torch.cuda.get_device_name(), torch.zeros(2).is_cuda)
    """)
    assert found == [
        "cuda", "cuda:", True, "cuda", True, "torch.cuda.FloatTensor", 4, [8, 0], True, False,
    ]  # fmt: skip


def test_the_devices_number_is_the_ranks_on_its_host(said):
    """Rank 5, with 4 ranks on a host, is on device 1, as PyTorch counts them."""
    assert said("""
        import os
        rank = int(os.environ["LOCAL_RANK"])
        given = torch.device("cuda", rank), torch.empty(2, device=f"cuda:{rank}").device
        torch.cuda.set_device(given[0])
        say(*[device.index for device in given], given[0].index == rank,
            torch.cuda.current_device())
    """) == [1, 1, True, 1]


def test_the_state_of_a_devices_generator_is_its_own(said):
    """As Megatron-Core forks random numbers: the host's numbers go on as they were."""
    found = said("""
        torch.manual_seed(7)
        wanted = torch.rand(2).tolist()
        torch.manual_seed(7)
        state = torch.cuda.get_rng_state()
        torch.cuda.manual_seed(3)
        torch.cuda.default_generators[0].set_state(state)
        say(torch.rand(2).tolist() == wanted, state.shape == torch.get_rng_state().shape)
    """)
    assert found == [True, True]


def test_a_range_may_have_its_ends_by_name(said):
    found = said("""
        named = {"end": 5}, {"start": 2, "end": 5}, {"start": 2, "end": 5, "step": 2}
        say(*(len(torch.arange(**names, device="cuda")) for names in named),
            len(torch.arange(2, end=5, device="cuda")))
    """)
    assert found == [5, 3, 2, 3]


def test_a_thread_of_a_data_loaders_pins_what_its_workers_made(said):
    found = said("""
        from torch.utils.data import DataLoader
        loader = DataLoader(torch.arange(6), batch_size=2, num_workers=1, pin_memory=True)
        say([batch.tolist() for batch in loader])
    """)
    assert found == [[[0, 1], [2, 3], [4, 5]]]


def test_a_gpus_tensor_may_be_indexed_by_the_hosts(said):
    assert said("""
        rows, columns = torch.tril_indices(4, 4, -1)
        square = torch.ones(2, 4, 4, device="cuda", requires_grad=True)
        below = square[:, rows, columns]
        below.sum().backward()
        say(list(below.shape), below.device.type, list(square.grad.shape))
    """) == [[2, 6], "cuda", [2, 4, 4]]


def test_ranks_are_text_that_is_followed_as_numbers(said):
    found = said("""
        from flint.frontends.torch.context import capture
        rank = int(os.environ["RANK"])
        local = int(os.environ.get("LOCAL_RANK", -1))
        asked = rank == 0, local == 1
        evidence = [item.kinds().tolist() for item in capture().evidence.all()]
        say(rank, local, int(os.environ["WORLD_SIZE"]), asked, sorted(evidence))
    """)
    first, second = [int(rank == 0) for rank in range(16)], [int(r % 4 == 1) for r in range(16)]
    assert found == [5, 1, 16, [False, True], [second, first]]


def test_ranks_that_are_read_as_bytes_are_told_apart(said):
    found = said("""
        from flint.frontends.torch.context import capture
        read = os.getenvb(b"RANK"), os.environb[b"WORLD_SIZE"], os.environb.get(b"NONE")
        kinds = [item.kinds().tolist() for item in capture().evidence.all()]
        say([str(item) for item in read], kinds)
    """)
    assert found == [["b'5'", "b'16'", "None"], [list(range(16))]]


def test_a_causal_mask_is_known_as_one(said):
    """PyTorch's transformers ask, and attend without a mask if the answer is yes."""
    assert said("""
        from torch.nn.modules import transformer
        made = transformer.Transformer.generate_square_subsequent_mask
        masks = made(4, device="cuda"), made(4).to("cuda"), made(4, device="cuda").tril(1)
        say([transformer._detect_is_causal_mask(mask, None, 4) for mask in masks])
    """) == [[True, True, False]]


def test_going_over_the_variables_is_not_a_question_about_the_rank(said):
    assert said("""
        from flint.frontends.torch.context import capture
        shown = [f"{name}={value}" for name, value in os.environ.items()]
        copied = dict(os.environ), os.environ.copy(), sorted(os.environ.items())
        say("RANK=5" in shown, len(list(capture().evidence.all())))
    """) == [True, 0]


def test_the_group_begins_when_the_program_begins_it(said):
    found = said("""
        import torch.distributed as dist
        before = dist.is_initialized()
        os.environ["TORCH_DIST_INIT_BARRIER"] = "1"  # which waits for other hosts
        dist.init_process_group("nccl")
        pairs = [dist.new_group([at, at + 1], group_desc="pairs") for at in range(0, 16, 2)]
        from flint.frontends.torch.context import capture
        number = torch.tensor([3], device="cuda")
        dist.all_reduce(number)
        total = number.item()
        dist.destroy_process_group()
        say(before, dist.is_initialized(), list(capture().shape), total)
    """)
    assert found == [False, False, [8, 2], 48]  # 16 ranks that give 3 each


def test_backward_hooks_may_name_the_device(said):
    found = said("""
        seen = []
        x = torch.ones(2, device="cuda", requires_grad=True)
        x.register_hook(lambda grad: seen.append(torch.zeros(2, device="cuda:0").is_cuda))
        (2 * x).sum().backward()
        say(seen)
    """)
    assert found == [[True]]


def test_a_stage_of_a_pipeline_knows_what_its_neighbour_sends(said):
    found = said("""
        import torch.distributed as dist
        from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
        dist.init_process_group("nccl")
        rank = dist.get_rank()
        pairs = [dist.new_group([at, at + 4]) for at in range(4)]     # only 1 and 5 run stages
        at = [1, 5].index(rank)
        layer = torch.nn.Linear(6, 7) if at == 0 else torch.nn.Linear(7, 8)
        stage = PipelineStage(layer.cuda(), at, 2, torch.device("cuda"), group=pairs[1])
        schedule = ScheduleGPipe(stage, 2, loss_fn=torch.nn.functional.mse_loss)
        if at == 0:
            schedule.step(torch.zeros(8, 6, device="cuda"))
        else:
            schedule.step(target=torch.zeros(8, 8, device="cuda"))
            say([list(meta.shape) for meta in stage._stage_meta.inputs])
    """)
    assert found == [[[4, 7]]]


def test_other_ranks_get_the_whole_numbers_that_rank_0_broadcasts(tmp_path, monkeypatch):
    monkeypatch.setattr(registry, "PROGRAMS", {"torch": registry.PROGRAMS["torch"]})
    (tmp_path / "train.py").write_text(
        textwrap.dedent("""
        import torch, torch.distributed as dist
        dist.init_process_group("nccl")
        sizes = torch.tensor([3, 7] if dist.get_rank() == 0 else [-1, -1], device="cuda")
        dist.broadcast(sizes, src=0)
        layer = torch.nn.Linear(*sizes.tolist()).cuda()
        assert list(layer.weight.shape) == [7, 3]
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
        for _ in range(3):
            layer(torch.ones(2, 3, device="cuda")).sum().backward()
            optimizer.step()
    """)
    )
    program = Program(target=str(tmp_path / "train.py"))
    request = ProgramRequest(program=program, cluster=Cluster(world=2, per_node=2))
    for rank in (0, 1):
        run_all(
            functools.partial(be_program, request),
            [rank],
            tmp_path,
            Limits(seconds=1200, memory=2**35),
        )


def test_numbers_that_another_rank_broadcasts_are_those_that_it_holds(said):
    found = said("""
        import torch.distributed as dist
        dist.init_process_group("nccl")
        rank, got = dist.get_rank(), []
        fours = [dist.new_group(list(range(at, at + 4))) for at in range(0, 16, 4)]
        for root, group in ((3, None), (0, None), (3, None), (rank // 4 * 4 + 2, fours[rank // 4])):
            number = torch.tensor([100 * len(got) + rank], device="cuda")
            dist.broadcast(number, src=root, group=group)
            got.append(number.item())
        host = torch.zeros(2, dtype=torch.int64) + rank
        dist.broadcast(host, src=9)
        say(got, host.tolist())
    """)
    assert found == [[3, 100, 203, 306], [9, 9]]


def test_a_broadcast_of_which_nothing_is_known_is_reported_with_its_line(said):
    [found] = said("""
        import torch.distributed as dist
        from flint.frontends.torch.context import capture
        dist.init_process_group("nccl")
        if dist.get_rank() == 2:
            raise SystemExit("the root cannot be run")
        dist.broadcast(torch.tensor([7], device="cuda"), src=2)
        say([text for text in capture().assumed if "train.py:9 " in text])
    """)
    assert len(found) == 1 and "assumed to be those of the recorded rank" in found[0]


def test_recurrent_networks_need_no_biases(said):
    assert said("""
        layers = [kind(8, 16, bias=False, num_layers=2).cuda() for kind in
                  (torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN)]
        for layer in layers:
            layer(torch.ones(5, 3, 8, device="cuda"))[0].sum().backward()
        say([list(layer.weight_hh_l1.grad.shape) for layer in layers])
    """) == [[[64, 16], [48, 16], [16, 16]]]


def test_mpi_without_its_launcher_is_reported(said, tmp_path):
    (tmp_path / "mpi4py").mkdir()
    for name in ("__init__", "MPI"):
        (tmp_path / "mpi4py" / f"{name}.py").touch()
    found = said("""
        from mpi4py import MPI
        from flint.launching.notes import noted
        say(list(noted))
    """)
    assert found == [["mpi4py is imported: it has one process, not the cluster's 16 ranks"]]
