"""What a program draws on the host after it has made its model is what a run draws."""

from __future__ import annotations

import textwrap

import pytest

from flint import load
from tests.programs.comparing import of_ranks
from tests.support.command_line import flint_with_torch as flint
from tests.support.shared import quick

torch = pytest.importorskip("torch")

#: Sizes below 16, of no multiple of 16, and of several parts.
MODEL = """
    import torch
    torch.manual_seed(5)
    model = torch.nn.Sequential(
        torch.nn.Linear(3, 2), torch.nn.Linear(37, 11), torch.nn.Embedding(20_011, 113)
    )
    for weight in model.parameters():
        torch.nn.init.normal_(weight, 0.0, 0.02)
    torch.nn.init.trunc_normal_(model[1].weight, std=0.5, a=-0.5, b=1.0)
    torch.nn.init.trunc_normal_(model[0].weight, std=0.02)
    numbers = torch.rand(4).tolist()
"""


def test_the_host_draws_after_a_models_weights_what_it_draws_in_a_run(said):
    names = {}
    exec(textwrap.dedent(MODEL), names)
    assert said(f"{MODEL}\n    say(numbers)") == [names["numbers"]]


#: Tensors of more elements than have values, which a program may make before it draws.
LARGE = """
    import torch
    torch.manual_seed(5)
    size = (1 << 24) + 5
    large = torch.randn(size), torch.randint(3, 77, (2 * size + 1,)), torch.rand(2, size)
    del large
    numbers = torch.rand(4).tolist()
"""


@pytest.mark.thorough
def test_the_host_draws_after_a_large_tensor_what_it_draws_in_a_run(said):
    names = {}
    exec(textwrap.dedent(LARGE), names)
    assert said(f"{LARGE}\n    say(numbers)") == [names["numbers"]]


ON_THE_DEVICE = """
import torch
model = torch.nn.Linear(64, 32, device="cuda")
torch.nn.init.trunc_normal_(model.weight, std=0.02)
torch.nn.init.trunc_normal_(model.weight, std=0.02, a=0.1, b=0.2)  # unlikely: drawn otherwise
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(4):
    model(torch.ones(16, 64, device="cuda")).sum().backward()
    optimizer.step()
"""


@pytest.mark.thorough
def test_weights_that_the_device_draws_in_a_range_are_no_question_about_the_step(tmp_path):
    (tmp_path / "train.py").write_text(ON_THE_DEVICE)
    done = flint("run", "--world", 2, "-o", "out", "--", "python", "train.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "is read" not in done.stderr


#: Where the styles of two numbers meet, as StyleGAN draws it, and other ways to draw a number.
DRAWN = {
    "torch.randint(2, 6, (1,), device='cuda').item()": (2, 6),
    "int(torch.randint(6, (), device='cuda'))": (0, 6),
    "torch.empty([], dtype=torch.int64, device='cuda').random_(1, 6).item()": (1, 6),
    "torch.empty([], dtype=torch.int64, device='cuda').random_(6).add(1).item()": (1, 7),
}


@pytest.mark.parametrize("drawn", quick(DRAWN, *list(DRAWN)[3:]))
def test_a_number_that_the_device_draws_for_a_size_is_one_of_its_range(tmp_path, drawn):
    (tmp_path / "train.py").write_text(textwrap.dedent(f"""
        import torch
        layer = torch.nn.Linear(4, 8, bias=False).cuda()
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
        for _ in range(3):
            size = 1 + {drawn}
            layer(torch.ones(size, 4, device="cuda")).sum().backward()
            optimizer.step()
    """))  # fmt: skip
    command = ("--", "python", "train.py")
    done = flint("run", "--world", 2, "-o", tmp_path / "out", *command, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    first, other = of_ranks(load(tmp_path / "out"))
    low, high = DRAWN[drawn]
    # A layer of 4 x 8, forward and for its weights: 2 x 2 FLOPs x rows x 32; the ranks are alike.
    assert first["flops"] in [2 * 2 * (1 + size) * 32 for size in range(low, high)]
    assert first == other and "that depends on a random number of" in done.stderr


def test_a_number_that_an_unknown_condition_chooses_is_the_other_one(said):
    assert said("""
        cutoff = torch.empty([], dtype=torch.int64, device="cuda").random_(1, 6)
        where = torch.where(torch.rand([], device="cuda") < 0.9, cutoff, torch.full_like(cutoff, 8))
        say(torch.ones(8)[:where].numel(), torch.ones(8, device="cuda")[:, None][where:].numel())
    """) == [8, 0]


def test_how_many_of_a_known_number_fall_to_each_part_is_drawn(said):
    """As vector quantization draws the samples of its k-means from the ranks."""
    assert said("""
        sizes = torch.tensor([30.0, 10.0], device="cuda")
        share, count = (sizes / sizes.sum()).cpu(), torch.tensor(8.0, device="cuda").cpu()
        first = torch.binomial(count, share[0])
        other = torch.binomial(count - first, share[1] / (1 - share[0]))
        say(int(first.item() + other.item()), 0 <= first.item() <= 8)
    """) == [8, True]
