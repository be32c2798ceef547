"""Models that were made on the CPU: moved by PyTorch as on a GPU, or said to be no work."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.distributed.fsdp import fully_shard  # noqa: E402

from flint.errors import FlintError  # noqa: E402
from tests.frontends.torch.in_child import record_in_child  # noqa: E402


class Tied(nn.Module):
    """An embedding whose table is the head's, as GPT-2 has it."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(32, 16)
        self.layer = nn.Linear(16, 16)
        self.head = nn.Linear(16, 32, bias=False)
        self.head.weight = self.table.weight

    def forward(self, tokens):
        return self.head(self.layer(self.table(tokens)))


def step(model, optimizer, tokens):
    model(tokens).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()


def setup(make):
    def build(mesh):
        model = make(mesh)
        tokens = torch.zeros(2, 8, dtype=torch.int64, device=mesh.device_type)
        return model, torch.optim.AdamW(model.parameters()), tokens

    return build


def sharded_on_cpu(mesh):
    return fully_shard(Tied(), mesh=mesh)


def sharded_on_device(mesh):
    with torch.device(mesh.device_type):
        return fully_shard(Tied(), mesh=mesh)


def moved(mesh):
    return Tied().to(mesh.device_type)


def moved_by_data(mesh):
    model = Tied()
    for parameter in model.parameters():
        parameter.data = parameter.data.to(mesh.device_type)
    return model


def made_on_device(mesh):
    with torch.device(mesh.device_type):
        return Tied()


def recording(make, mesh):
    return record_in_child(step, setup(make), mesh, ("dp",))


@pytest.mark.parametrize(
    "elsewhere,there,mesh",
    [
        (sharded_on_cpu, sharded_on_device, (4,)),
        (moved, made_on_device, (1,)),
        (moved_by_data, made_on_device, (1,)),
    ],
)
def test_a_model_made_on_the_cpu_runs_as_one_made_on_the_device(elsewhere, there, mesh):
    found, wanted = recording(elsewhere, mesh), recording(there, mesh)
    assert [op.name for op in found.ops] == [op.name for op in wanted.ops]
    assert {(item.role, item.name) for item in found.inputs} == {
        (item.role, item.name) for item in wanted.inputs
    }


def test_weights_that_are_tied_stay_so_when_they_are_moved():
    parameters = [item for item in recording(moved, (1,)).inputs if item.role == "parameter"]
    # The table, the layer's weight and bias; the head's weight is the table.
    assert sorted(item.view.shape for item in parameters) == [(16,), (16, 16), (32, 16)]


def test_a_step_that_runs_on_the_cpu_is_refused_with_the_line():
    def build(mesh):
        model = nn.Linear(4, 4)
        return model, torch.optim.SGD(model.parameters()), torch.ones(2, 4)

    with pytest.raises(FlintError, match=r"ran on CPU tensors.*test_made_on_cpu\.py:\d+.*\.to\("):
        record_in_child(step, build, (1,), ("dp",))


def test_what_a_step_computes_on_the_cpu_is_left_out_and_reported_with_its_line():
    def build(mesh):
        return torch.ones(8, device=mesh.device_type), torch.ones(8)

    def both(x, y):
        return x + 1, y + 1

    found = record_in_child(both, build, (1,), ("dp",))
    assert [op.name for op in found.ops] == ["aten.add.Tensor"]
    ((text, count),) = found.warnings.items()
    assert "computed on the CPU at" in text and "test_made_on_cpu.py" in text and count == 1


def test_an_op_on_no_elements_is_not_a_kernel():
    def build(mesh):
        return (torch.ones(4, device=mesh.device_type),)

    def grow(x):
        nothing = torch.empty(0, device=x.device).to(torch.bfloat16)
        return torch.cat([nothing, x.to(torch.bfloat16)])

    found = record_in_child(grow, build, (1,), ("dp",))
    assert [op.name for op in found.ops] == ["aten._to_copy.default", "aten.cat.default"]
