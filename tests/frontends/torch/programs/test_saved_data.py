"""What a program saves into buffers, and what it loads from files that hold the host's data."""

from __future__ import annotations


def test_what_has_values_is_saved_into_a_buffer(said, tmp_path):
    """The program writes it: a data set that it prepares once. What has none is not made up."""
    assert said(f"""
        import io
        os.chdir("{tmp_path}")
        buffer, other = io.BytesIO(), io.BytesIO()
        torch.save({{"rows": torch.arange(3)}}, buffer)
        torch.save(torch.nn.Linear(2, 2).state_dict(), other)
        found = torch.load(io.BytesIO(buffer.getvalue()))
        open("model.pt", "wb").write(other.getvalue())
        say(list(found["rows"].shape), len(buffer.getvalue()) > 0,
            list(torch.load("model.pt")["weight"].shape),
            list(torch.load(io.BytesIO(other.getvalue()))["bias"].shape))
    """) == [[3], True, [2, 2], [2]]


def test_arguments_may_have_names(said, tmp_path):
    """Those that PyTorch gives them."""
    assert said(f"""
        import torch.distributed as dist
        os.chdir("{tmp_path}")
        dist.init_process_group("nccl")
        layer = torch.nn.Linear(2, 3)
        torch.save(obj=[1, 2], f="host.pt")
        torch.save(obj=layer.state_dict(), f="model.pt")
        layer.load_state_dict(state_dict=torch.load(f="model.pt", map_location="cuda"))
        mesh = dist.DeviceMesh(device_type="cuda", mesh=torch.arange(16), mesh_dim_names=("all",))
        say(torch.load(f="host.pt"), mesh.get_local_rank(mesh_dim="all"))
    """) == [[1, 2], 5]


def test_what_was_saved_is_loaded_where_the_program_wants_it(said, tmp_path):
    """As PyTorch does: a data set that is prepared on the host goes to the device, and back."""
    assert said(f"""
        os.chdir("{tmp_path}")
        torch.save({{"rows": (torch.zeros(3, 2), "a")}}, "rows.pt")
        torch.save(torch.nn.Linear(2, 3).cuda().state_dict(), "model.pt")
        rows = torch.load("rows.pt", map_location=torch.device("cuda"))["rows"]
        weight = torch.load("model.pt", map_location="cpu")["weight"]
        say(rows[0].device.type, rows[1], torch.load("rows.pt")["rows"][0].device.type,
            weight.device.type, list(weight.shape))
    """) == ["cuda", "a", "cpu", "cpu", [3, 2]]


def test_a_note_of_an_earlier_capture_is_named(said, tmp_path):
    note = b"flint run writes no parameters and no device tensors, which have no values: 1.0\n"
    (tmp_path / "model.pt").write_bytes(note)
    [text] = said(f"""
        try:
            torch.load("{tmp_path}/model.pt")
        except Exception as error:
            say(str(error))
    """)
    assert text.startswith("torch.load at ") and text.endswith("model.pt): remove it")


def test_the_hosts_tensors_of_a_file_have_values(said, tmp_path):
    """Those that were written by PyTorch itself: of the CPU, and as if of a device."""
    import torch

    rows = {"edges": torch.tensor([[0, 2, 1], [1, 0, 2]]), "layer": torch.nn.Linear(2, 3)}
    torch.save(rows, tmp_path / "host.pt")
    of_device = (tmp_path / "host.pt").read_bytes().replace(b"cpuq", b"gpuq")
    (tmp_path / "unknown.pt").write_bytes(of_device)
    found = said(f"""
        import io
        os.chdir("{tmp_path}")
        buffer = io.BytesIO(b"ab" + open("host.pt", "rb").read())
        buffer.seek(2)
        kinds = [torch.load(name, place, weights_only=False)
                 for name, place in (("host.pt", None), (buffer, "cpu"), ("host.pt", "cuda"))]
        parts = [item["edges"] for item in kinds]
        rows = parts[0][:, parts[0][1] > 0]
        try:
            torch.load("unknown.pt", weights_only=False)
        except Exception as error:
            words = str(error)
        from torch._subclasses.fake_tensor import FakeTensor
        say([not isinstance(part, FakeTensor) and part.tolist() for part in parts],
            list(rows.shape),
            [isinstance(item["layer"].weight, FakeTensor) for item in kinds],
            parts[2].device.type, words[:28])
    """)
    edges = [[0, 2, 1], [1, 0, 2]]
    assert found[:4] == [[edges, edges, False], [2, 2], [True] * 3, "cuda"]


def test_tensors_without_values_may_be_pickled_and_copied(said):
    """A program checks that its model can be pickled; a shallow copy of a tensor is a view."""
    assert said("""
        import copy, pickle
        layer, rows = torch.nn.Linear(2, 3).cuda(), torch.zeros(3, 2, device="cuda").t()
        again, host, moved = pickle.loads(pickle.dumps([layer, torch.nn.Linear(2, 2), rows]))
        view = copy.copy(rows)
        view.add_(1)
        say(isinstance(again.weight, torch.nn.Parameter), list(again.weight.shape),
            again.weight is layer.weight, str(again.weight.device), str(host.weight.device),
            list(moved.shape), moved.is_contiguous(), moved.requires_grad, rows.tolist(),
            list(again(torch.ones(4, 2, device="cuda")).shape),
            isinstance(copy.copy(layer.weight), torch.nn.Parameter))
    """) == [True, [3, 2], False, "cuda:0", "cpu", [2, 3], False, False, [[1.0] * 3] * 2, [4, 3],
             True]  # fmt: skip


def test_a_table_loaded_onto_the_device_has_its_rows(said, tmp_path):
    """PyTorch makes an empty tensor first, which then gets the file's memory."""
    import torch

    torch.save(torch.arange(600, dtype=torch.int32), tmp_path / "table.pt")
    assert said(f"""
        table = torch.load("{tmp_path}/table.pt", map_location="cuda")
        other = torch.empty(0, dtype=torch.int64, device="cuda")
        other.set_(torch.arange(3, device="cuda"))
        say(list(table[torch.tensor([5, 599], device="cuda")].shape), other.tolist())
    """) == [[2], [0, 1, 2]]


def test_safetensors_reads_no_memory_that_is_not_there(said, tmp_path):
    """The package passes addresses on to be read; here is one that fails where it would."""
    package = tmp_path / "safetensors"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "torch.py").write_text(
        "def save_file(*_): raise SystemError\ndef save(*_): raise SystemError\n"
        "def load_file(*_): raise SystemError\n"
    )
    assert said(f"""
        import sys
        sys.path.insert(0, {str(tmp_path)!r})
        from safetensors.torch import load_file, save, save_file
        layer = torch.nn.Linear(2, 3)
        save_file(layer.state_dict(), "model.safetensors")
        say(list(load_file("model.safetensors")["weight"].shape), type(save({{}})).__name__)
    """) == [[3, 2], "bytes"]


def test_packages_do_not_take_the_run_for_a_trace(said):
    assert said("""
        import torch._subclasses
        from torch._subclasses import FakeTensorMode
        say(isinstance(torch.ones(2, device="cuda"), torch._subclasses.FakeTensor))
    """) == [False]
