"""Parameters that a program moves, ties, copies and makes anew, which are the device's."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")
import flint.frontends.torch.programs.rank  # noqa: F401  # here, not in every child


def test_a_parameter_is_made_of_the_type_of_another(said):
    """As accelerate and diffusers do with every weight that they load."""
    found = said("""
        layer = torch.nn.Linear(4, 2)
        for name, old in list(layer.named_parameters()):
            layer._parameters[name] = type(old)(old.to("cuda"), requires_grad=name == "weight")
        layer(torch.ones(3, 4).cuda()).sum().backward()
        say([(isinstance(item, torch.nn.Parameter), item.is_cuda, item.grad is None)
             for item in layer.parameters()])
    """)
    assert found == [[[True, True, False], [True, True, True]]]


def test_data_parallel_has_one_device(said):
    shape, refusal = said("""
        layer, batch = torch.nn.Linear(4, 2).cuda(), torch.ones(3, 4)
        alone = torch.nn.DataParallel(layer, device_ids=[0])(batch)
        try:
            torch.nn.DataParallel(layer)(batch)
        except Exception as error:
            say(list(alone.shape), str(error))
    """)
    assert shape == [3, 2]
    assert refusal.startswith("DataParallel runs 4 devices in one process at ")


def test_tied_parameters_stay_tied_when_a_model_is_moved(said):
    assert said("""
        model = torch.nn.Module()
        model.a, model.b = torch.nn.Embedding(8, 4), torch.nn.Linear(4, 8, bias=False)
        model.a.weight = model.b.weight
        model.to("cuda")
        say(model.a.weight is model.b.weight, len(list(model.parameters())))
    """) == [True, 1]


def test_what_a_program_noted_at_a_parameter_stays_there_when_its_module_is_moved(said):
    assert said("""
        model = torch.nn.Linear(4, 8)
        model.weight.shared_by, model.bias.shared_by = "all", "some"
        model.to("cuda").to(torch.bfloat16).float()
        moved = torch.nn.Parameter(torch.ones(4))
        moved.shared_by = "all"
        moved.data = moved.to("cuda")
        say(*(item.shared_by for item in (*model.parameters(), moved)))
    """) == ["all", "some", "all"]


def test_a_devices_tensors_are_shared_as_they_are(said):
    found = said("""
        say(len(list(torch.nn.Linear(4, 2).cuda().share_memory().parameters())))
    """)
    assert found == [2]
