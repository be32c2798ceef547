"""Parameters of TorchScript's modules, which C++ holds."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

import flint.frontends.torch.programs.rank  # noqa: F401  # here, not in every child


def test_a_scripted_module_that_moves_keeps_its_parameters(said):
    """As an optimizer that was made before knows them; a buffer moves, too."""
    assert said("""
        class Scaled(torch.jit.ScriptModule):
            def __init__(self):
                super().__init__()
                self.weight = torch.nn.Parameter(torch.ones(4096, 64))
                self.register_buffer("ones", torch.ones(64))
            @torch.jit.script_method
            def forward(self, x):
                return x @ self.weight + self.ones
        model = torch.nn.Sequential(Scaled(), torch.nn.Linear(64, 8))
        before = list(model.parameters())
        model.to(torch.bfloat16).to("cuda")
        out = model(torch.ones(2, 4096, device="cuda", dtype=torch.bfloat16))
        out.sum().backward()
        same = [one is other for one, other in zip(before, model.parameters())]
        graded = [item.grad is not None and item.is_cuda for item in before]
        say(same, graded, list(out.shape), model[0].ones.is_cuda)
    """) == [[True] * 3, [True] * 3, [2, 8], True]


def test_code_that_is_scripted_is_said_to_be_eager_once_it_runs(said):
    """TorchScript's own gradients are more products than those of eager code: 10,240 FLOPs, not
    8,704, for two layers whose input's gradient is differentiated again (torch 2.13, on a CPU)."""
    found = said("""
        from flint.frontends.torch.context import capture
        @torch.jit.script
        def twice(x: torch.Tensor):
            return x + x
        @torch.jit.script
        def never(x: torch.Tensor):
            return x
        model = torch.jit.script(torch.nn.Linear(4, 2).cuda())
        out = [twice(model(torch.ones(3, 4, device="cuda"))) for _ in range(2)]
        say(list(out[0].shape), twice.__name__, type(model) is torch.nn.Linear,
            sorted(text for text in capture().assumed if "jit" in text))
    """)
    assert found[:3] == [[3, 2], "twice", True]
    assert [text.partition(" at ")[0] for text in found[3]] == ["torch.jit.script"] * 2
    assert all(text.endswith(": the ops are those of eager code") for text in found[3])
    assert "train.py:5" in found[3][1] or "train.py:5" in found[3][0]


def test_what_is_scripted_is_a_script_module_and_can_be_saved_and_loaded(said, tmp_path):
    """As in a run of torch 2.13 on a CPU; e3nn's modules are copied through such a buffer."""
    assert said(f"""
        import copy, io
        made = torch.jit.script(torch.nn.Linear(4, 2))
        buffer = io.BytesIO()
        torch.jit.save(made, buffer)
        back = torch.jit.load(io.BytesIO(buffer.getvalue()))
        made.save({str(tmp_path / "made.pt")!r})
        again = torch.jit.load({str(tmp_path / "made.pt")!r})
        say([isinstance(item, torch.jit.ScriptModule)
             for item in (made, copy.deepcopy(made), back, again, torch.nn.Linear(4, 2))],
            list(back(torch.ones(3, 4)).shape), back.weight is made.weight, bool(buffer.getvalue()))
    """) == [[True] * 4 + [False], [3, 2], False, True]
