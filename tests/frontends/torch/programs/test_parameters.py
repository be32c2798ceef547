"""Parameters that a program moves, ties, copies and makes anew, which are the device's."""

from __future__ import annotations

import textwrap

import pytest

pytest.importorskip("torch")
import torch

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


def test_parameters_without_sizes_get_them_where_the_module_has_been_moved(said):
    """As PyTorch's own do: on the device, of the type, and in the order that the module has."""
    found = said("""
        nn = torch.nn
        model = nn.Sequential(nn.LazyLinear(8), nn.LazyBatchNorm1d(), nn.LazyLinear(4)).cuda()
        made = nn.LazyLinear(3, device="cuda", dtype=torch.float64)
        made(torch.ones(2, 5, device="cuda", dtype=torch.float64))
        before = list(model[0]._parameters)
        out = model(torch.ones(2, 6, device="cuda"))
        out.sum().backward()
        say(before, [[name, list(item.shape), item.device.type, type(item).__name__,
                      item.requires_grad, item.grad is not None]
                     for name, item in model.named_parameters()],
            [[name, list(item.shape), item.device.type] for name, item in model.named_buffers()],
            [list(made.weight.shape), made.weight.device.type, str(made.weight.dtype)],
            type(model[0]).__name__, isinstance(model[0].weight, nn.Parameter))
    """)
    grown = [True, True]
    assert [[name, shape, device, *more] for name, shape, device, _, *more in found[1]] == [
        ["0.weight", [8, 6], "cuda", *grown], ["0.bias", [8], "cuda", *grown],
        ["1.weight", [8], "cuda", *grown], ["1.bias", [8], "cuda", *grown],
        ["2.weight", [4, 8], "cuda", *grown], ["2.bias", [4], "cuda", *grown],
    ]  # fmt: skip
    assert found[0] == ["weight", "bias"]
    assert found[2] == [
        ["1.running_mean", [8], "cuda"], ["1.running_var", [8], "cuda"],
        ["1.num_batches_tracked", [], "cuda"],
    ]  # fmt: skip
    assert found[3:] == [[[3, 5], "cuda", "torch.float64"], "Linear", True]


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


def test_a_parameter_of_a_class_with_slots_stays_itself_in_a_module_that_is_moved(said):
    """As TorchRec's part of a table of several embeddings."""
    text = """
        class Part(torch.nn.Parameter):
            __slots__ = ["place"]
            def __new__(cls, table):
                return table[:4].as_subclass(cls)
        layer = torch.nn.Linear(4, 4)
        layer.weight = part = Part(torch.ones(8, 4, device=device)).requires_grad_()
        part.place = 3
        layer.to(device)(torch.ones(2, 4, device=device)).sum().backward()
        say(layer.weight is part, type(part) is Part, part.place, list(part.grad.shape))
    """
    real, names = [], {"torch": torch, "device": "cpu"}
    exec(textwrap.dedent(text), names | {"say": lambda *found: real.extend(found)})
    assert said(f"        device = 'cuda'{text}") == real == [True, True, 3, [4, 4]]


def test_a_note_that_hides_a_tensors_function_hides_it_from_the_program_only(said):
    """As Megatron notes the stride of a weight's parts."""
    assert said("""
        layer = torch.nn.Linear(4, 2).cuda()
        layer.bias.stride = 1
        layer.bias.data.zero_()
        layer(torch.ones(3, 4, device="cuda")).sum().backward()
        say(layer.bias.stride, layer.weight.stride(), list(layer.bias.grad.shape))
    """) == [1, [4, 1], [2]]


def test_a_parameters_value_is_that_of_the_data_that_it_has_now(said):
    """As DeepSpeed's ZeRO-3 empties parameters, and gathers them again."""
    assert said("""
        scale = torch.nn.Parameter(torch.ones(4, device="cuda"))
        other = torch.full((3,), 2, device="cuda")
        count = torch.zeros(2, dtype=torch.int64, device="cuda")
        scale.data = torch.empty(0, device="cuda")
        empty = list(scale.view_as(scale).shape)
        count.data = other
        other.add_(1)
        say(empty, count.tolist())
    """) == [[0], [3, 3, 3]]


def test_a_devices_tensors_are_shared_as_they_are(said):
    found = said("""
        say(len(list(torch.nn.Linear(4, 2).cuda().share_memory().parameters())))
    """)
    assert found == [2]


def test_a_program_may_replace_what_makes_tensors(said):
    """As nanotron and DeepSpeed do while they make a model; what PyTorch itself makes stays."""
    assert said("""
        plain = torch.empty
        def made(*args, **kwargs):
            kwargs.update(device="cuda", dtype=torch.bfloat16)
            return plain(*args, **kwargs)
        torch.empty = made
        layer = torch.nn.Linear(4, 2)
        index = torch.randint(3, (5,), device="cuda")
        x = torch.nn.functional.one_hot(index, 4).to(torch.bfloat16)
        torch.empty = plain
        say(str(layer.weight.dtype), layer.weight.device.type, str(index.dtype),
            list(layer(x).shape))
    """) == ["torch.bfloat16", "cuda", "torch.int64", [5, 2]]


def test_a_parameter_may_be_of_a_class_of_the_program(said):
    """As nanotron's and vLLM's: it has the class's methods, also after it was moved and copied."""
    found = said("""
        import copy
        class Tied(torch.nn.Parameter):
            def __new__(cls, tensor, requires_grad=True):
                made = torch.nn.Parameter.__new__(cls, tensor.data.detach(), requires_grad)
                made.told = {}
                return made
            @property
            def is_told(self):
                return bool(self.told)
            def tell(self, word):
                self.told[word] = 1
        class Packed(torch.nn.Parameter):
            def __new__(cls, tensor):
                return torch.Tensor._make_subclass(cls, tensor, True)
        class Layer(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.weight = Tied(torch.nn.Parameter(torch.zeros(3, 4)))
                self.weight.tell("x")
        layer = Layer().to("cuda").to(torch.bfloat16)
        copied = copy.deepcopy(layer)
        weight = layer.weight
        loss = (torch.ones(2, 3, device="cuda", dtype=torch.bfloat16) @ weight).sum()
        loss.backward()
        say([isinstance(item, Tied) and type(item) == Tied and item.is_told
             for item in (weight, copied.weight)],
            isinstance(weight, torch.nn.Parameter), len(list(layer.parameters())),
            weight.device.type, list(weight.grad.shape), type(weight + 1) == Tied,
            type(Packed(torch.ones(2, device="cuda"))) == Packed)
    """)
    assert found == [[True, True], True, 1, "cuda", [3, 4], False, True]


def test_a_tensor_may_be_of_a_class_of_the_program(said):
    """As torchvision's images: on the host and on the device, and what follows from them."""
    body = """
        class Own(torch.Tensor):
            def __new__(cls, data, words=None):
                return data.as_subclass(cls)
            def __init__(self, data, words=None):
                self.words = words
            @property
            def told(self):
                return self.words
        class Plain(torch.Tensor):
            pass
        host, device = Own(torch.ones(2, 3), "a"), Own(torch.ones(2, 3, device="DEVICE"), "b")
        both = host.to("DEVICE") + device
        weight = torch.ones(3, 3, device="DEVICE", requires_grad=True)
        loss = Own(weight[:2]).mm(weight).sum()
        loss.backward()
        made = host, device, host + 1, device * 2, both, Plain([1.0, 2.0]), Plain(torch.ones(3))
        say([type(item) == Own for item in made], [list(item.shape) for item in made],
            host.told, device.told, type(loss) == Own, list(weight.grad.shape),
            type(device.as_subclass(torch.Tensor)) == Own, (host + 1).sum().item(),
            isinstance(torch.nn.Parameter(device), torch.nn.Parameter))
    """
    here: list[object] = []
    exec(
        textwrap.dedent(body.replace("DEVICE", "cpu")),
        {"torch": torch, "say": lambda *x: here.extend(x)},
    )
    assert said(body.replace("DEVICE", "cuda")) == here


def test_a_tensor_of_a_class_of_its_own_may_be_made_of_a_parameter(said):
    """As ExpandedWeight is, which has rules for some functions only."""
    assert said("""
        class Own(torch.Tensor):
            def __new__(cls, data):
                return torch.Tensor._make_subclass(cls, data, data.requires_grad)
            @classmethod
            def __torch_function__(cls, function, kinds, args=(), kwargs=None):
                if function.__name__ != "mm":
                    raise TypeError(function.__name__)
                with torch._C.DisableTorchFunctionSubclass():
                    return function(*args, **kwargs or {})
        own = Own(torch.nn.Parameter(torch.ones(3, 4, device="cuda")))
        with torch._C.DisableTorchFunctionSubclass():
            seen = type(own) == Own, own.is_leaf, own.requires_grad
        say(*seen, list(torch.mm(torch.ones(2, 3, device="cuda"), own).shape))
    """) == [True, True, True, [2, 4]]


def test_a_part_of_a_storage_is_memory_that_tensors_share(said):
    """As nanotron's gradients: each in its part of one buffer, which a collective sends."""
    found = said("""
        whole = torch.zeros(8, device="cuda")
        storage = whole.untyped_storage()
        part = torch.empty([], dtype=torch.float32, device=storage[8:24].device)
        part.set_(source=storage[8:24])
        rows = torch.empty(0, device="cuda").set_(storage, 2, (2, 2), (2, 1))
        everything = torch.empty(0, device="cuda").set_(storage)
        part.view(2, 2).add_(1)
        say(storage.device.type, len(storage[8:24]), len(storage[8:24][4:8]), list(part.shape),
            part.storage_offset(), rows.stride(), everything.numel(),
            [item.untyped_storage()._cdata == storage._cdata for item in (part, rows, everything)])
    """)
    assert found == ["cuda", 16, 4, [4], 2, [2, 1], 8, [True] * 3]


def test_deep_copies_of_parts_of_a_storage_share_a_copy_of_it(said):
    text = """
        import copy
        def form_of(*parts):
            one, other = copy.deepcopy(list(parts))
            shared = one.untyped_storage()._cdata == other.untyped_storage()._cdata
            return [shared, one.untyped_storage().nbytes(), other.storage_offset(), one.stride()]
        forms = []
        for device in ("cuda", "cpu"):
            layer = torch.nn.Linear(2, 3, device=device)
            bucket = torch.zeros(12, device=device)
            layer.weight.grad, layer.bias.grad = bucket[2:8].reshape(3, 2), bucket[8:11]
            forms.append(form_of(layer.weight.grad, layer.bias.grad))
            copied = copy.deepcopy(layer)
            assert copied.weight.grad.shape == (3, 2) and copied.bias.grad.storage_offset() == 8
        say(*forms)
    """
    on_device, on_host = said(text)
    assert on_device == on_host == [True, 48, 8, [2, 1]]


def test_weights_with_a_gradient_of_each_sample_are_those_of_the_host(said):
    """PyTorch's own class, which raises where C++ asks it for a tensor's device."""
    of_device, of_host = said("""
        from torch.nn.utils._per_sample_grad import call_for_per_sample_grads
        forms = []
        for device in ("cuda", "cpu"):
            model = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.ReLU(),
                                        torch.nn.Linear(5, 3)).to(device).eval()
            seen = call_for_per_sample_grads(model, batch_size=4)(torch.ones(4, 6, device=device))
            seen.sum().backward()
            forms.append([list(item.grad_sample.shape) for item in model.parameters()])
        say(*forms)
    """)
    assert of_device == of_host == [[4, 5, 6], [4, 5], [4, 3, 5], [4, 3]]
