"""Programs whose batches are nested tensors of jagged layout: sequences of different lengths."""

from __future__ import annotations

import textwrap

import pytest

pytest.importorskip("torch")

from flint import load
from tests.programs.comparing import captured, real

LENGTHS = (3, 5, 8)
PROGRAM = """
    import torch
    from torch.nn import functional as F
    device = "cuda" if torch.cuda.is_available() else "cpu"
    words = [torch.arange(length) for length in (3, 5, 8)]
    batch = torch.nested.as_nested_tensor(words, layout=torch.jagged)
    assert batch.offsets().tolist() == [0, 3, 8, 16]
    table = torch.nn.Embedding(8, 32, device=device)
    layers = [torch.nn.Linear(32, 32, device=device) for _ in range(3)]
    head = torch.nn.Linear(32, 8, device=device)
    optimizer = torch.optim.SGD([*table.parameters(), *head.parameters()], lr=0.1)
    def apart(state):
        return state.unflatten(-1, [4, 8]).transpose(1, 2)
    for _ in range(4):
        there = batch.to(device)
        state = table(there)
        %s
        scores = head(state)
        loss = F.cross_entropy(scores.values(), there.values())
        last = torch.nested.nested_tensor_from_jagged(scores.values(), there.offsets())
        loss = loss + sum(part[-1].sum() for part in last.unbind())
        assert [len(part) for part in last.unbind()] == there.offsets().diff().tolist()
        padded = torch.nested.to_padded_tensor(scores, 0.0)
        assert padded.shape == (3, 8, 8)
        (loss + padded.sum()).backward()
        optimizer.step()
        optimizer.zero_grad()
"""
ATTENDS = "state = F.scaled_dot_product_attention(*(apart(layer(state)) for layer in layers))"
SCORES = "state = state.transpose(1, 2).flatten(-2)"


def program(folder, *lines):
    text = textwrap.dedent(PROGRAM)
    (folder / "train.py").write_text(text % "\n    ".join(lines))


def test_layers_take_as_many_rows_as_sequences_have_words(tmp_path):
    """The head is 32 x 8, forward and for both of its gradients."""
    program(tmp_path, "pass")
    run = real(tmp_path, 1, "train.py")
    assert run[0]["flops"] == 3 * 2 * sum(LENGTHS) * 32 * 8
    assert captured(tmp_path, 1, "train.py") == run


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["float32", "bfloat16"])
def test_attention_of_a_batch_is_one_kernel(tmp_path, kind):
    """In single precision the memory-efficient one: flash attention takes half precision."""
    program(tmp_path, f"state = state.to(torch.{kind})", ATTENDS, SCORES, "state = state.float()")
    text = (tmp_path / "train.py").read_text()
    (tmp_path / "train.py").write_text(
        text.replace("(32, 32, device=device)", f"(32, 32, device=device, dtype=torch.{kind})")
    )
    captured(tmp_path, 1, "train.py")
    graph = load(tmp_path / "out").programs[0].graph
    kernels = [node.op for node in graph if "attention" in node.op]
    name = "flash" if kind == "bfloat16" else "efficient"
    assert kernels == [
        f"aten._{name}_attention_forward.default", f"aten._{name}_attention_backward.default"
    ]  # fmt: skip
