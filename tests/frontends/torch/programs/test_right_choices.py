"""Numbers of right choices, which programs show: read as 1 in a step, and told apart from sizes."""

from __future__ import annotations

import re

import pytest

BEGIN = """
    from flint.frontends.torch.context import capture
    capture().strict_values = True
    scores, labels = torch.randn(8, 4, device="cuda").relu(), torch.randint(4, (8,)).cuda()
    unknown = scores.sum(1).long()
    mask = torch.tensor([True, False] * 4).cuda()
    right = torch.zeros(1, dtype=torch.long, device="cuda")
"""
COUNTS = {
    "int((scores.argmax(-1)[mask] == labels[mask]).sum())": 1,
    "scores.max(1)[1].eq(unknown.view(8)).sum().item()": 1,
    "(scores.max(1, keepdim=True)[1] != unknown.view(8, 1)).cpu().sum().item()": 1,
    "((scores[:, 0].sigmoid() > 0.5).long() == unknown).sum().item()": 1,
    "torch.count_nonzero((scores.argmax(1) == unknown) & mask).item()": 1,
    "right.add_((scores.argmax(1) == unknown).sum()).item()": 1,
    "torch.stack([(scores.argmax(1) == unknown).sum(), right.sum()]).tolist()": [1, 1],
}
SIZES = (
    "right.add_((scores.argmax(1) == unknown).sum()).copy_(unknown[:1]).item()",
    "unknown.sum().item()",
)


@pytest.mark.parametrize("read", COUNTS)
def test_a_count_of_right_choices_is_read_as_1_with_a_warning(said, read):
    value, warnings = said(f"{BEGIN}    say({read}, list(capture().assumed))")
    assert value == COUNTS[read]
    assert any(
        re.match(r"how many choices were right is read at .*train.py:10: assumed to be 1", text)
        for text in warnings
    )


@pytest.mark.parametrize("read", SIZES)
def test_other_integers_of_a_step_are_errors(said, read):
    [text] = said(f"""{BEGIN}
    try:
        say("read as " + str({read}))
    except Exception as error:
        say(str(error))
    """)
    assert text.startswith("an integer tensor's value is read at ") and "train.py:12" in text


def test_words_of_a_generated_text_are_read_as_0(said):
    """As transformers' generate() makes it and trl's GRPO reads it; a size is no word."""
    words, size, warnings = said(f"""{BEGIN}
    text = torch.ones(8, 3, dtype=torch.long, device="cuda")
    alive = torch.ones(8, dtype=torch.long, device="cuda")
    for _ in range(2):
        word = torch.multinomial(scores.softmax(-1), 1).squeeze(1)
        word = word * alive + 5 * (1 - alive)
        text = torch.cat([text, word[:, None]], dim=-1)
    said = [row[keep].tolist() for row, keep in zip(text[:, 3:].cpu(), (text[:, 3:] > 2).cpu())]
    try:
        size = text.sum().item()
    except Exception as error:
        size = str(error)
    say(said, size, list(capture().assumed))
    """)
    assert words == [[0, 0]] * 8
    assert str(size).startswith("an integer tensor's value is read")
    assert any("a word of a generated text is read at" in text for text in warnings)
