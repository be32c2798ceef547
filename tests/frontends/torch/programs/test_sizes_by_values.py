"""Sizes that follow from values: of the host, which are known, or of the device, by assumption."""

from __future__ import annotations

import textwrap

import pytest

pytest.importorskip("torch")
import torch

import flint.frontends.torch.programs.rank  # noqa: F401  # here, not in every child


def test_lbfgs_has_as_many_closures_as_without_tolerances(said):
    program = textwrap.dedent("""
        calls, weight = [], torch.nn.Parameter(torch.ones(3, device="{device}"))
        optimizer = torch.optim.LBFGS([weight], lr=0.01, max_iter=6, history_size=4, {more})
        def closure():
            calls.append(1)
            optimizer.zero_grad()
            loss = (weight ** 4).sum()
            loss.backward()
            return loss
        optimizer.step(closure)
        group = optimizer.param_groups[0]
        say(len(calls), len(optimizer.state[weight]["old_dirs"]), group["max_iter"])
    """)
    real = []
    free = program.format(device="cpu", more="tolerance_grad=-1, tolerance_change=-1")
    exec(free, {"torch": torch, "say": lambda *items: real.extend(items)})
    assert said(program.format(device="cuda", more="")) == real == [6, 4, 6]


def test_packed_sequences_have_the_sizes_of_their_lengths(said):
    """Of a tensor [4, 7, 2] 20 rows are within their lengths, as PyTorch itself packs it."""
    packing = """
        from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
        def sizes(device):
            x = torch.ones(4, 7, 2, device=device, requires_grad=True)
            rows = pack_padded_sequence(x, torch.tensor([3, 7, 5, 5]), True, enforce_sorted=False)
            padded, lengths = pad_packed_sequence(rows, batch_first=True)
            padded.sum().backward()
            shapes = [list(item.shape) for item in (rows.data, padded, x.grad)]
            return [rows.batch_sizes.tolist(), lengths.tolist(), shapes]
        say(sizes("{device}"))
    """
    real = []
    program = textwrap.dedent(packing.format(device="cpu"))
    exec(program, {"torch": torch, "say": real.append})
    assert said(packing.format(device="cuda")) == real


def test_sequences_of_unknown_lengths_count_with_their_padding(said):
    assert said("""
        from torch.nn.utils.rnn import pack_padded_sequence
        from flint.frontends.torch.context import capture
        lengths = torch.randint(1, 7, (4,), device="cuda").cpu()
        rows = pack_padded_sequence(torch.ones(7, 4, 2, device="cuda"), lengths)
        [said] = [text for text in capture().assumed if "packed" in text]
        say(list(rows.data.shape), said.endswith("is assumed to be 7"))
    """) == [[28, 2], True]


def test_a_tensor_that_picks_a_row_is_no_count(said):
    """Which row it is changes no shape; the host waits for it, as PyTorch does."""
    assert said("""
        from flint.frontends.torch.context import capture
        capture().strict_values = True
        x = torch.randn(4, 6, device="cuda")
        column = x[:, x.sum(0).argmax()]
        x[x.sum(1).argmin()] = 0
        [text] = {text.partition(" at ")[0] for text in capture().assumed}
        say(list(column.shape), text, sum(capture().assumed.values()))
    """) == [[4], "a tensor picks a place along a dim", 2]


def test_a_ctc_lattice_has_the_hosts_lengths(said):
    assert said("""
        scores = torch.randn(10, 2, 11, device="cuda")
        lengths = torch.tensor([10, 10]), torch.tensor([3, 2])
        from flint.frontends.torch.context import capture
        torch.nn.functional.ctc_loss(scores, torch.ones(2, 4, dtype=torch.long).cuda(), *lengths)
        say([text for text in capture().assumed if "ctc" in text])
    """) == [[]]


def test_the_masks_of_a_large_batch_decide_sizes(said):
    """256 rows of 512 tokens; the host masks every seventh."""
    assert said("""
        labels = torch.arange(256 * 512).view(256, 512)
        labels[labels % 7 != 0] = -100
        x = torch.ones(256, 512, 4, device="cuda")
        say(list(x[labels.cuda() != -100].shape))
    """) == [[-(-256 * 512 // 7), 4]]


def test_what_is_known_of_few_numbers_is_not_computed_for_many(said):
    """Differences of 64 Ki positions are 32 GiB."""
    assert said("""
        many = torch.arange(1 << 16, device="cuda")[:, None] - torch.arange(1 << 16, device="cuda")
        say(list(many.shape))
    """) == [[1 << 16, 1 << 16]]


def test_a_file_of_tokens_is_read_into_a_tensor_of_its_size(said, tmp_path):
    """25 million tokens of 16 bits: more elements than floats may have on the host."""
    (tmp_path / "tokens.bin").write_bytes(bytes(50_000_000))
    assert said(f"""
        tokens = torch.empty(25_000_000, dtype=torch.uint16, pin_memory=True)
        with open("{tmp_path}/tokens.bin", "rb", buffering=0) as file:
            say(file.readinto(tokens.numpy()), len(tokens[5:7].tolist()))
    """) == [50_000_000, 2]


def test_masks_and_counts_of_the_host_give_the_sizes_that_they_have(said):
    """Of tensors on the device, as PyTorch itself computes them."""
    choosing = """
        def sizes(device):
            labels = torch.tensor([[3, -100, 5], [-100, -100, 7]]).to(device)
            x = torch.ones(2, 3, 4, device=device, requires_grad=True)
            asked = labels != -100
            rows, places = x[asked], asked.nonzero()
            found = x.masked_select(asked[..., None])
            counts = torch.tensor([2, 0, 3]).to(device)
            again = torch.arange(3, device=device).repeat_interleave(counts)
            (rows.sum() + found.sum()).backward()
            shapes = [list(item.shape) for item in (rows, found, x.grad)]
            host = torch.tensor([5, 6, 7])[torch.tensor([True, False, True])]
            numbers = places, labels[asked], again, host
            return [shapes, [item.tolist() for item in numbers]]
        say(sizes("{device}"))
    """
    real = []
    program = textwrap.dedent(choosing.format(device="cpu"))
    exec(program, {"torch": torch, "say": real.append})
    assert said(choosing.format(device="cuda")) == real


def test_numbers_of_the_host_that_ranks_gather_are_assumed_to_be_the_same(said):
    """As trainers count the tokens of a batch: 16 ranks with 10 each."""
    assert said("""
        import torch.distributed as dist
        from flint.frontends.torch.context import capture
        dist.init_process_group("nccl")
        capture().strict_values = True
        count = torch.ones(2, 5, dtype=torch.int64).to("cuda").sum()[None]
        together = torch.empty(16, dtype=torch.int64, device="cuda")
        dist.all_gather_into_tensor(together, count)
        each = [torch.empty_like(count) for _ in range(16)]
        dist.all_gather(each, count)
        numbers = together.sum().item(), torch.stack(each).sum().item()
        say(*numbers, len([text for text in capture().assumed if "giving the same" in text]))
    """) == [160, 160, 1]


def test_what_is_not_written_yet_is_not_known(said):
    assert said("""
        from flint.frontends.torch.recording.known_values import known_value
        ones = torch.ones(3, device="cuda")
        made = (ones + 1, torch.empty_like(ones), ones.new_empty(3), ones.new_zeros(3))
        say(*(known_value(item) is not None for item in made))
    """) == [True, False, False, True]


READS = """
        from flint.frontends.torch.context import capture
        capture().strict_values = True
        def assumed():
            return [text for text in capture().assumed if "nothing has written" in text]
"""


def test_an_inverse_permutation_is_written_before_it_is_read(said):
    assert said(f"""{READS}
        order = torch.tensor([2, 0, 3, 1]).to("cuda")
        places, rows = torch.empty_like(order), torch.empty(2, 4, dtype=torch.int32, device="cuda")
        places[order] = torch.arange(4, device="cuda")
        rows[0], rows[1] = 7, places
        by_scatter = torch.empty_like(order).scatter_(0, order, torch.arange(4, device="cuda"))
        found = [item.tolist() for item in (places, rows, by_scatter, rows.t()[1])]
        say(found, torch.ones(4, device="cuda")[places < 3].shape[0], assumed())
    """) == [[[1, 3, 0, 2], [[7] * 4, [1, 3, 0, 2]], [1, 3, 0, 2], [7, 3]], 3, []]


def test_integers_that_nothing_has_written_are_zero_with_a_warning(said):
    """5 + 5 of 4 numbers; of 3 lengths one is greater than 0."""
    assert said(f"""{READS}
        counts = torch.empty(4, dtype=torch.int64, device="cuda")
        counts[:2] = 5
        first, before = counts[:2].sum().item(), len(assumed())
        total, after = counts.sum().item(), len(assumed())
        lengths = torch.empty_like(torch.tensor([1, 2, 3]).to("cuda"))
        lengths[1] = 4
        rows = torch.ones(3, device="cuda")[lengths > 0]
        new = torch.ones(2, device="cuda").new_empty(2, dtype=torch.int32).add_(1)
        say(first, before, total, after, len(rows), len(assumed()), new.tolist(), len(assumed()))
    """) == [10, 0, 10, 1, 1, 2, [1, 1], 3]


def test_what_is_gathered_is_marked_where_its_sender_has_not_written_it(said):
    """As of pickled objects, which are shorter than their buffer."""
    assert said(f"""{READS}
        import torch.distributed as dist
        dist.init_process_group("nccl")
        sent = torch.empty(4, dtype=torch.uint8, device="cuda")
        sent[0], sent[1] = 7, 8
        got = [torch.empty_like(sent) for _ in range(16)]
        dist.all_gather(got, sent)
        written, before = got[9][:2].tolist(), len(assumed())
        say(written, before, got[9].tolist(), len(assumed()))
    """) == [[7, 8], 0, [7, 8, 0, 0], 1]


def test_so_are_types_in_which_every_number_may_be_written(said):
    """A byte may be anything: what nothing has written is noted beside it. A view of the part that
    is written has no warning; a later one of the rest has."""
    assert said(f"""{READS}
        found = []
        for kind in (torch.bool, torch.int8, torch.uint8):
            like = torch.empty_like(torch.zeros(4, dtype=kind, device="cuda"))
            flags = torch.empty(4, dtype=kind, device="cuda")
            for item in (flags, like):
                item[:2] = torch.tensor([1, 0], device="cuda")
                item.masked_fill_(torch.tensor([0, 0, 1, 0], device="cuda").bool(), 1)
                known, before = item[:3].tolist(), len(assumed())
                parts, rest = item.split(2)[1][1:].tolist(), len(assumed())
                item[3] = True
                found += [list(map(int, known)), before, list(map(int, parts)), rest,
                          list(map(int, item.tolist())), len(assumed()) - rest]
        say(found)
    """) == [
        [part for turn in range(6) for part in ([1, 0, 1], min(turn, 1), [0], 1, [1, 0, 1, 1], 0)]
    ]


def test_values_of_buffers_survive_their_broadcast_with_others(said):
    """DDP sends them in one tensor; those of statistics are not known, and stay unknown."""
    assert said("""
        import torch.distributed as dist
        from flint.frontends.torch.recording.known_values import known_value
        dist.init_process_group("nccl")
        model = torch.nn.BatchNorm1d(2).cuda()
        model.register_buffer("anchors", torch.tensor([0.5, 2.0], device="cuda"))
        model(torch.randn(4, 2, device="cuda"))
        model = torch.nn.parallel.DistributedDataParallel(model)
        model(torch.randn(4, 2, device="cuda"))
        known = [known_value(item) for item in (model.module.anchors, model.module.running_mean)]
        say(known[0].tolist(), known[1])
    """) == [[0.5, 2.0], None]


def test_a_choice_among_scores_is_the_first_and_no_count(said):
    assert said("""
        from flint.frontends.torch.context import capture
        capture().strict_values = True
        scores = torch.randn(4, 6, device="cuda")
        drawn = torch.distributions.Categorical(logits=scores).sample()
        one = torch.distributions.Categorical(logits=scores[0]).sample()
        read = [drawn.tolist(), scores.argmax(1).cpu().numpy().tolist(), one.item(),
                scores.argmin().item(), scores.max(1).indices[2].item()]
        say(read, all("choice" in text or "range" in text for text in capture().assumed))
    """) == [[[0] * 4, [0] * 4, 0, 0, 0], True]


def test_a_size_that_is_no_choice_remains_an_error(said):
    assert said("""
        from flint.errors import FlintError
        from flint.frontends.torch.context import capture
        capture().strict_values = True
        lengths = (torch.randn(4, 6, device="cuda") > 0).sum(1)
        try:
            lengths.prod().item()
        except FlintError as error:
            say(str(error).partition(" at ")[0])
    """) == ["an integer tensor's value is read"]
