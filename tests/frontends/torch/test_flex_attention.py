"""FlexAttention: fused kernels whose work is that of the blocks which the mask leaves."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch.nn.attention.flex_attention import (  # noqa: E402
    BlockMask,
    create_block_mask,
    flex_attention,
)

import flint  # noqa: E402
from tests.frontends.torch.in_child import record_in_child  # noqa: E402

BATCH, HEADS, LENGTH, SIZE, BLOCK = 2, 4, 512, 16, 128
#: Multiply and add for every pair of positions and element of a head.
PRODUCT = 2 * BATCH * HEADS * LENGTH * LENGTH * SIZE


def causal(batch, head, query, key):
    return query >= key


def setup(mesh):
    def tensor(heads):
        shape = (BATCH, heads, LENGTH, SIZE)
        return torch.zeros(shape, device=mesh.device_type, requires_grad=True)

    return tensor(HEADS), tensor(HEADS // 2), tensor(HEADS // 2)


def blocks(mask):
    return create_block_mask(mask, None, None, LENGTH, LENGTH, device="cuda", BLOCK_SIZE=BLOCK)


def unmasked(query, key, value):
    flex_attention(query, key, value, enable_gqa=True).sum().backward()


def masked(query, key, value):
    found = torch.compile(flex_attention)(
        query, key, value, block_mask=blocks(causal), enable_gqa=True
    )
    found.sum().backward()


def by_documents(query, key, value):
    documents = query.new_empty(LENGTH).to(torch.int64)

    def same(batch, head, query, key):
        return documents[query] == documents[key]

    flex_attention(query, key, value, block_mask=blocks(same), enable_gqa=True).sum().backward()


def by_known_documents(query, key, value):
    """Two of 128 and one of 256 positions: 1 + 1 + 4 blocks."""
    lengths = torch.tensor([BLOCK, BLOCK, 2 * BLOCK], device=query.device)
    documents = torch.arange(3, device=query.device).repeat_interleave(lengths)

    def same(batch, head, query, key):
        return documents[query] == documents[key]

    flex_attention(query, key, value, block_mask=blocks(same), enable_gqa=True).sum().backward()


def by_own_numbers(query, key, value):
    """A program writes the numbers of blocks: one of each row that is partly masked, one full."""
    rows = LENGTH // BLOCK
    numbers = torch.ones(1, 1, rows, dtype=torch.int32, device=query.device)
    blocks = torch.arange(rows, dtype=torch.int32, device=query.device).expand(1, 1, rows, rows)
    mask = BlockMask.from_kv_blocks(
        numbers, blocks, numbers, blocks, BLOCK_SIZE=BLOCK, mask_mod=causal
    )
    flex_attention(query, key, value, block_mask=mask, enable_gqa=True).sum().backward()


def large(query, key, value):
    """Its mask has 2^32 positions, more than are evaluated: a band of two blocks."""
    long = [item[:1, :1, :1].expand(1, 1, 2**16, SIZE) for item in (query, key, value)]

    def band(batch, head, query, key):
        return (query >= key) & (query - key < BLOCK)

    mask = create_block_mask(band, None, None, 2**16, 2**16, device="cuda", BLOCK_SIZE=BLOCK)
    flex_attention(*long, block_mask=mask).sum().backward()


def biased(query, key, value):
    def bias(score, batch, head, query, key):
        return score + (query - key)

    flex_attention(query, key, value, score_mod=bias, enable_gqa=True).sum().backward()


def flops(step):
    capture = flint.capture(mesh=(1,), axes=("dp",), setup=setup)(step)
    graph = capture.capture().programs[0].graph
    pairs = zip((node.op for node in graph), graph.flops_by_node().tolist(), strict=True)
    return {name.split(".")[1]: count for name, count in pairs if "flex" in name}


# Of 4 x 4 blocks a causal mask leaves those on the diagonal and below: 4 + 3 + 2 + 1.
@pytest.mark.parametrize(
    ("step", "part"),
    [(unmasked, 1), (masked, 10 / 16), (by_known_documents, 6 / 16), (by_documents, 1)],
)
def test_work_is_that_of_the_blocks_that_are_left(step, part):
    # Scores and weighted values; backward the scores again and four gradients.
    assert flops(step) == {
        "flex_attention": 2 * PRODUCT * part,
        "flex_attention_backward": 5 * PRODUCT * part,
    }


def test_a_mask_that_needs_values_is_reported_with_its_line():
    recording = record_in_child(by_documents, setup, (1,), ("dp",))
    ((text, count),) = [item for item in recording.warnings.items() if "FlexAttention" in item[0]]
    assert "test_flex_attention.py" in text and "as if nothing was masked" in text and count == 1


def test_a_programs_own_numbers_of_blocks_are_those_that_are_visited():
    found = flops(by_own_numbers)
    assert found["flex_attention"] == 2 * PRODUCT * (1 + 1) / 4  # of four in each row


@pytest.mark.thorough
def test_blocks_of_a_large_mask_are_counted_in_some_rows():
    found = flops(large)
    assert found["flex_attention"] == 2 * 2 * 2**16 * (2 * BLOCK) * SIZE
    recording = record_in_child(large, setup, (1,), ("dp",))
    (text,) = [item for item in recording.warnings if "FlexAttention" in item]
    assert "in 32 of 512 rows" in text


def test_a_changed_score_is_reported():
    recording = record_in_child(biased, setup, (1,), ("dp",))
    assert any("score_mod is not counted" in text for text in recording.warnings)


def test_attention_is_one_kernel_forward_and_one_backward():
    recording = record_in_child(unmasked, setup, (1,), ("dp",))
    found = [(op.name, op.phase) for op in recording.ops if "attention" in op.name]
    assert found == [
        ("flint.flex_attention.default", "forward"),
        ("flint.flex_attention_backward.default", "backward"),
    ]
