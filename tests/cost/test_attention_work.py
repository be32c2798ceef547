"""Attention of recorded ops against masks drawn out, PyTorch's own counter and counts by hand."""

from __future__ import annotations

from itertools import product

import pytest

from flint.cost.aten_work import work_of
from flint.cost.attention_work import LOWER_BOUND, UNKNOWN
from flint.graph.work import Unit

HEADS, SIZE = 3, 8


def flops(work, unit=Unit.MATMUL):
    return sum(item.flops for item in work.items if item.unit == unit)


def tensor(*shape, dtype="bf16"):
    return [(shape, dtype)]


def varlen(rows, columns, sequences, longest, causal=False, window=(-1, -1), offsets=(None, None)):
    """What FlashAttention's op for several sequences in one tensor is recorded with."""
    starts = tensor(sequences + 1, dtype="i32")
    arguments = [
        tensor(rows, HEADS, SIZE), tensor(columns, 1, SIZE), tensor(columns, 1, SIZE),
        starts, starts, *[[]] * 13,
    ]  # fmt: skip
    values = [None] * 3 + [*offsets, *longest, 0.0, 1.0, causal, *window] + [None] * 6
    return work_of("flash_attn::_flash_attn_varlen_forward", arguments, values)


def drawn(rows, columns, causal, window):
    """Pairs of FlashAttention's mask, by its documentation: query i attends keys between
    i + columns - rows - left and i + columns - rows + right, of which none behind it if causal.
    """
    left, right = (side if side >= 0 else 1 << 20 for side in window)
    return sum(
        -left <= key - (i + columns - rows) <= (0 if causal else right)
        for i in range(rows)
        for key in range(columns)
    )


MASKS = [(False, (-1, -1)), (True, (-1, -1)), (True, (2, 0)), (False, (1, 2))]


@pytest.mark.parametrize(("causal", "window"), MASKS)
def test_one_sequence_has_the_pairs_of_its_mask_drawn_out(causal, window):
    """Two products of 2 x 8 FLOPs for each pair of each head."""
    for rows, columns in product((1, 2, 5, 9), (1, 2, 5, 9)):
        work = varlen(rows, columns, 1, (rows, columns), causal, window)
        pairs = drawn(rows, columns, causal, window)
        assert flops(work) == HEADS * pairs * 2 * 2 * SIZE and not work.lacks
        assert flops(work, Unit.TRANSCENDENTAL) == HEADS * pairs


@pytest.mark.parametrize(("causal", "window"), MASKS)
def test_sequences_of_unknown_lengths_have_at_least_the_pairs_of_equal_ones(causal, window):
    """Of all ways to part 11 positions in three sequences the one with the fewest pairs."""
    least = min(
        sum(drawn(n, n, causal, window) for n in (a, b, 11 - a - b))
        for a in range(12)
        for b in range(12 - a)
    )
    work = varlen(11, 11, 3, (7, 7), causal, window)
    assert (flops(work), work.lacks) == (HEADS * least * 2 * 2 * SIZE, LOWER_BOUND)


def test_sequences_that_fill_their_bound_are_exact():
    """Four of 6 positions are 24: none can be shorter.  Causal: 4 x 6 x 7 / 2 pairs."""
    work = varlen(24, 24, 4, (6, 6), True)
    assert (flops(work), work.lacks) == (HEADS * 84 * 2 * 2 * SIZE, "")


def test_one_new_token_of_each_sequence_sees_all_keys():
    """Four queries over 100 keys in all, however those are parted: 100 pairs."""
    work = varlen(4, 100, 4, (1, 90), True)
    assert (flops(work), work.lacks) == (HEADS * 100 * 2 * 2 * SIZE, "")


@pytest.mark.parametrize(("causal", "window"), MASKS)
def test_sequences_of_known_lengths_have_the_pairs_of_each(causal, window):
    """Sequences of 3, 0 and 5 positions; the last 2 of the tensor belong to none."""
    offsets = [[0, 3, 3, 8], [0, 3, 3, 8]]
    work = varlen(10, 10, 3, (7, 7), causal, window, offsets)
    pairs = sum(drawn(n, n, causal, window) for n in (3, 5))
    assert (flops(work), work.lacks) == (HEADS * pairs * 2 * 2 * SIZE, "")


@pytest.mark.parametrize("wrong", [[0, 5, 3, 8], [1, 3, 3, 8], [0, 3, 3, 11], [0, 8]])
def test_offsets_that_cannot_be_are_not_taken_for_lengths(wrong):
    work = varlen(10, 10, 3, (7, 7), True, offsets=[wrong, [0, 3, 3, 8]])
    assert work.lacks == LOWER_BOUND


def test_new_tokens_of_unknown_numbers_over_caches_of_unknown_lengths_have_no_number():
    work = varlen(20, 100, 4, (9, 90), True)
    assert (work.items, work.moved, work.lacks) == (None, None, UNKNOWN)


def test_several_sequences_are_those_of_pytorchs_own_counter():
    """It reads the lengths: those of equal ones are equal, those of others no fewer."""
    import torch
    from torch.utils.flop_counter import flop_registry

    aten = torch.ops.aten
    for lengths in ((8, 8, 8), (2, 10, 12)):
        starts = torch.tensor([0, *lengths], dtype=torch.int32).cumsum(0).int()
        for op, names, shape in (
            (aten._flash_attention_forward, ("cum_seq_q", "cum_seq_k"), (24, HEADS, SIZE)),
            (aten._efficient_attention_forward, ("cu_seqlens_q", "cu_seqlens_k"),
             (1, 24, HEADS, SIZE)),
        ):  # fmt: skip
            x, longest = torch.empty(shape, device="meta"), max(lengths)
            schema = [item.name for item in op.default._schema.arguments]
            told = dict(zip(names, (starts, starts), strict=True))
            bounds = dict.fromkeys(("max_q", "max_k", "max_seqlen_q", "max_seqlen_k"), longest)
            given = {"query": x, "key": x, "value": x, **told, **bounds}
            counted = flop_registry[op](
                *(given.get(name) for name in schema[: schema.index("dropout_p")]),
                0.0, 0, False, out_val=None,
            )  # fmt: skip
            arguments = [
                tensor(*given[n].shape) if isinstance(given.get(n), torch.Tensor) else []
                for n in schema
            ]
            values = [given[n] if type(given.get(n)) is int else None for n in schema]
            work = work_of(str(op).replace(".", "::"), arguments, values)
            if len(set(lengths)) == 1:
                assert (flops(work), work.lacks) == (counted, "")
            else:
                assert flops(work) < counted and work.lacks == LOWER_BOUND
            known = [
                given[n].tolist() if n in names else value
                for n, value in zip(schema, values, strict=True)
            ]
            work = work_of(str(op).replace(".", "::"), arguments, known)
            assert (flops(work), work.lacks) == (counted, "")


def test_hoppers_kernels_are_known_by_their_library():
    """FlashAttention 3 calls its op ``fwd``, as others do: two batches of 16 causal positions."""
    x = tensor(2, 16, HEADS, SIZE)
    arguments = [x, x, x, *[[]] * 30]
    values = [None] * 24 + [True, -1, -1]
    work = work_of("flash_attn_3::fwd", arguments, values)
    assert flops(work) == 2 * HEADS * (16 * 17 // 2) * 2 * 2 * SIZE
    assert work_of("mine::fwd", arguments, values).items is None


PAGES = tensor(9000, 16, 1, SIZE)
FLASHINFER = "flashinfer::batch_decode_with_kv_cache_dtype_q_bf16_head_dim_qk_128_run"


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("_C::paged_attention_v1", [tensor(4, HEADS, SIZE)] * 2 + [PAGES] * 2 + [[]] * 16),
        ("vllm::unified_attention_with_output", [tensor(4, HEADS, SIZE)] * 4 + [[]]),
        (FLASHINFER, [tensor(1 << 20, dtype="ui8"), tensor(4, HEADS, SIZE), PAGES, PAGES]),
        ("_vllm_fa2_C::varlen_fwd",
         [tensor(4, HEADS, SIZE), PAGES, PAGES, [], tensor(5), tensor(5), tensor(4), [],
          tensor(4, 90), *[[]] * 12]),
    ],
)  # fmt: skip
def test_attention_over_pages_has_no_number_and_reports_it(name, arguments):
    """How many pages a query reads is a value; the cache's shape is that of all there are."""
    work = work_of(name, arguments, [None] * len(arguments))
    assert (work.items, work.moved, work.lacks) == (None, (0, 0), UNKNOWN)


@pytest.mark.parametrize(("stored", "size", "scaled"), [("bf16", 2, 0), ("ui8", 1, 1)])
def test_a_cache_takes_in_the_new_keys_and_values_and_nothing_else_of_it_moves(
    stored, size, scaled
):
    """7 of 8 given tokens have a slot: 2 x 7 x 3 x 8 = 336 numbers of 2 bytes and 7 slots of 8 are
    read, as many numbers are written, in 8 bits after scaling each.
    """
    cache = tensor(9000, 16, HEADS, SIZE, dtype=stored)
    arguments = [*[tensor(8, HEADS, SIZE)] * 2, cache, cache, tensor(7, dtype="i64"), [], [], []]
    work = work_of("_C_cache_ops::reshape_and_cache_flash", arguments, [None] * 8)
    assert (work.moved, work.lacks) == ((336 * 2 + 7 * 8, 336 * size), "")
    assert flops(work, Unit.VECTOR) == 336 * scaled
