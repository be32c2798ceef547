"""Programs whose data are not there: what they get on request, and what is said about it."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

torch = pytest.importorskip("torch")
import flint.frontends.torch.programs.rank  # noqa: E402, F401  # here, not in every child


def needs(package):
    """Skip without a package; it is not imported here, where it would find a network."""
    if find_spec(package) is None:
        pytest.skip(f"{package} is not installed")


def test_files_of_tokens_are_zeros_and_texts_are_words(made_up):
    found = made_up("""
        import numpy as np, pathlib
        from flint.launching.notes import noted
        data = np.memmap("train.bin", dtype=np.uint16, mode="r")
        rows = np.memmap("rows.bin", dtype=np.int32, mode="r", shape=(7, 5))
        few = np.fromfile("few.bin", dtype=np.uint8, count=9)
        texts = [open("input.txt").read(), pathlib.Path("input.txt").read_text()]
        say(len(data) > 10**8, int(data[12345:20000].max()), rows.shape, len(few),
            [len(text.split()) for text in texts], sorted(noted)[0])
    """)
    assert found[:4] == [True, 0, [7, 5], 9]
    assert found[4][0] == found[4][1] > 10**5
    assert found[5].startswith("made-up data at ") and "train.py:" in found[5]


def test_what_is_there_is_read(made_up, tmp_path):
    (tmp_path / "input.txt").write_text("three real words")
    found = made_up(f"""
        import numpy as np
        np.arange(6, dtype=np.uint16).tofile("{tmp_path}/train.bin")
        torch.save(dict(epoch=3), "{tmp_path}/state.pt")
        from flint.launching.notes import noted
        say(np.memmap("{tmp_path}/train.bin", dtype=np.uint16, mode="r").tolist(),
            open("{tmp_path}/input.txt").read(), torch.load("{tmp_path}/state.pt"), len(noted))
    """, allow=frozenset(("checkpoints",)))  # fmt: skip
    assert found == [[0, 1, 2, 3, 4, 5], "three real words", {"epoch": 3}, 0]


def test_a_program_that_knows_what_to_do_without_its_data_does_it(said):
    assert said("""
        try:
            torch.load("none.pt")
        except FileNotFoundError:
            say("from scratch")
    """) == ["from scratch"]


def test_what_is_loaded_from_a_checkpoint_that_is_not_there_stays_as_it_is(made_up):
    found = made_up("""
        state = torch.load("none.pt", map_location="cuda")
        model = torch.nn.Linear(3, 4).cuda()
        optimizer = torch.optim.AdamW(model.parameters())
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)
        missing, _ = model.load_state_dict(state["model"])
        model.load_state_dict({k.removeprefix("module."): v for k, v in state["model"].items()})
        optimizer.load_state_dict(state["optimizer"])
        schedule.load_state_dict(state["schedule"])
        say(missing, state["epoch"], state["iter_num"] + 1, list(model.weight.shape))
    """)
    assert found == [[], 0, 1, [4, 3]]


def test_a_shape_of_a_missing_checkpoint_is_the_one_that_it_is_compared_with(made_up):
    found = made_up("""
        state, said = torch.load("none.pt"), []
        own = torch.nn.Linear(3, 4).weight
        try:
            torch.empty(*state["weight"].shape)
        except Exception as error:
            said.append(str(error))
        kept = state["weight"].shape
        say(kept == own.shape, own.shape == kept, kept[0] != 4, own.shape[0] != kept[0], said)
    """)
    assert found[:4] == [True, True, False, False]
    assert "is used as a number or an array at " in found[4][0]


def test_a_size_that_only_a_missing_checkpoint_has_is_an_error_that_names_it(made_up):
    found = made_up("""
        state, said = torch.load("none.pt"), []
        for use in (range, torch.empty, lambda value: value + 1, lambda value: value[1:, 2]):
            try:
                use(state["args"]["layers"])
            except Exception as error:
                said.append(str(error))
        say(said)
    """)[0]
    assert (
        "['args']['layers'] is used as a number or an array at " in found[0]
        and "train.py:7" in found[0]
    )
    assert "MissingCheckpointValue" in found[1]
    assert "is used as a number" in found[2] and "is used as a number" in found[3]


def test_what_the_host_holds_is_saved_on_leave_and_nothing_else(said, tmp_path):
    found = said(f"""
        torch.save(dict(order=torch.arange(4), epoch=3), "{tmp_path}/host.pt")
        torch.save(dict(deep=[torch.zeros(2, device="cuda")]), "{tmp_path}/device.pt")
        torch.save(torch.nn.Linear(2, 2).state_dict(), "{tmp_path}/model.pt")
        from flint.frontends.torch.context import capture
        say(sorted(capture().assumed))
    """, allow=frozenset(("checkpoints",)))  # fmt: skip
    assert len(found[0]) == 2 and all("which have no values" in text for text in found[0])
    assert {path.name for path in tmp_path.glob("*.pt")} == {"host.pt"}
    held = torch.load(tmp_path / "host.pt")
    assert (held["order"].tolist(), held["epoch"]) == ([0, 1, 2, 3], 3)


@pytest.mark.parametrize("allow", [(), ("checkpoints",)])
def test_what_a_program_saves_it_can_load(said, allow):
    found = said("""
        import io
        from flint.frontends.torch.context import capture
        layer, buffer, epochs = torch.nn.Linear(2, 3).cuda(), io.BytesIO(), [1]
        torch.save({"model": layer.state_dict(), "epochs": epochs}, "best.pt")
        torch.save(layer, buffer)
        epochs.append(2)
        best = torch.load(open("best.pt", "rb") if os.path.exists("best.pt") else "best.pt")
        say(list(best["model"]["weight"].shape), best["epochs"],
            list(torch.load(buffer, weights_only=False).bias.shape),
            [text for text in capture().assumed if "has saved" in text])
    """, allow=frozenset(allow))  # fmt: skip
    assert found[:3] == [[3, 2], [1], [3]]
    assert all("train.py:" in text for text in found[3])  # not a line of Flint's


def test_a_program_finds_the_checkpoint_that_it_has_saved(said, tmp_path):
    """As those that finish a checkpoint under another name and wait for it."""
    found = said(f"""
        import pathlib, shutil, torch.distributed.checkpoint as dcp
        os.chdir("{tmp_path}")
        pathlib.Path("new").mkdir()
        torch.save(dict(epoch=3), "new/state.pt")
        state = dict(weight=torch.zeros(2, device="cuda"))
        dcp.save(state, checkpoint_id="new/model")
        pathlib.Path("new").replace("last")
        dcp.load(state, checkpoint_id="last/model")
        with open("last/state.pt", "rb") as file:
            epoch = torch.load(file)["epoch"]
        asked = (*map(os.path.isfile, ("last/state.pt", "last/model/.metadata", "new/state.pt")),
                 pathlib.Path("last/state.pt").exists(), os.path.exists("last/model/other"))
        shutil.rmtree("last")
        say(epoch, list(asked), os.path.exists("last/state.pt"))
    """)
    assert found == [3, [True, True, False, True, False], False]
    assert not list(tmp_path.rglob("state.pt")) and not list(tmp_path.rglob(".metadata"))


def test_what_a_program_saves_it_can_move_copy_and_remove(said, tmp_path):
    found = said(f"""
        import pathlib, shutil
        os.chdir("{tmp_path}")
        torch.save(dict(epoch=3), "new.tmp")
        os.rename("new.tmp", "last.pt")
        shutil.copyfile("last.pt", "best.pt")
        os.link("last.pt", "other.pt")
        pathlib.Path("other.pt").replace("kept.pt")
        os.unlink("last.pt")
        torch.save(dict(epoch=4), "last.pt")
        seen = [torch.load(name)["epoch"] for name in ("last.pt", "best.pt", "kept.pt")]
        for gone in ("new.tmp", "other.pt"):
            try: os.rename(gone, "x")
            except FileNotFoundError: seen.append("gone")
        pathlib.Path("real.txt").write_text("real")
        shutil.copy("real.txt", "copy.txt")
        os.replace("copy.txt", "moved.txt")
        say(*seen, pathlib.Path("moved.txt").read_text(), os.path.exists("copy.txt"))
    """)  # fmt: skip
    assert found == [4, 3, 3, "gone", "gone", "real", False]


def test_images_have_the_size_and_number_of_the_data_set(made_up):
    needs("torchvision")
    assert made_up("""
        from torchvision import datasets, transforms
        small = datasets.CIFAR10("none", transform=transforms.ToTensor())
        grey = datasets.MNIST("none", train=False)
        folder = datasets.ImageFolder("none", transforms.ToTensor())
        say(list(small[7][0].shape), small[7][1], len(small), grey[0][0].size, len(folder.classes),
            isinstance(folder, datasets.ImageFolder), len(grey), len(grey.data),
            len(datasets.SVHN("none", split="test")), len(datasets.EMNIST("none", "byclass")))
    """) == [[3, 32, 32], 7, 50_000, [28, 28], 1000, True, 10_000, 10_000, 26_032, 697_932]


def test_images_go_to_processes_that_start_anew(made_up):
    """There a data set comes from its pickle; one of files has a loader and a transform."""
    needs("torchvision")
    assert made_up("""
        import pickle
        from torchvision import datasets, transforms
        files = datasets.DatasetFolder("none", open, (".png",), transforms.ToTensor())
        grey = datasets.MNIST("none", train=False)
        files, grey = pickle.loads(pickle.dumps([files, grey]))
        say(list(files[3][0].shape), files[3][1], len(files), len(grey), list(grey.data.shape),
            isinstance(files, datasets.DatasetFolder))
    """) == [[3, 224, 224], 3, 1_281_167, 10_000, [10_000, 28, 28], True]


def test_images_that_a_data_set_holds_in_memory_are_there(made_up):
    needs("torchvision")
    assert made_up("""
        from torchvision import datasets
        grey, small = datasets.MNIST("none"), datasets.CIFAR10("none")
        house = datasets.SVHN("none", download=True)
        say(list(grey.data.unsqueeze(1).shape), int((grey.targets == 9).sum()),
            list(small.data.shape), small.targets[11], list(house.data.shape), house.labels.shape)
    """) == [[60_000, 1, 28, 28], 6_000, [50_000, 32, 32, 3], 1, [73_257, 3, 32, 32], [73_257]]


def test_rows_have_the_columns_that_are_asked_for(made_up):
    needs("datasets")
    found = made_up("""
        from datasets import load_dataset
        from flint.launching.notes import noted
        rows = load_dataset("no/corpus")["train"]
        pairs = rows.map(lambda row: {"both": row["question"] + " " + row["answer"]},
                         remove_columns=rows.column_names)
        parts = rows.map(lambda many: {"n": [len(text.split()) for text in many["text"]] * 2},
                         batched=True, remove_columns=["text"])
        stream = load_dataset("no/corpus", split="train", streaming=True)
        later = next(iter(stream.map(lambda row: {"label": row["label"]})))
        loader = torch.utils.data.DataLoader(rows.shuffle(seed=1), batch_size=4)
        seen = rows.with_transform(lambda many: {"sizes": [item.size for item in many["image"]]})
        say(seen[:2]["sizes"], seen[7]["sizes"],
            pairs.column_names, len(pairs[5]["both"].split()), len(pairs) == len(rows),
            len(parts) == 2 * len(rows), later["label"], len(next(iter(loader))["text"]),
            any("column question" in text for text in noted))
    """)
    shown = [[[224, 224]] * 2, [224, 224]]
    assert found == [*shown, ["both"], 2048, True, True, 0, 4, True]


def test_features_of_a_data_set_are_those_of_the_columns_that_are_asked_for(made_up):
    needs("datasets")
    assert made_up("""
        from datasets import load_dataset
        rows = load_dataset("no/corpus")["train"]
        features = rows.map(lambda row: {"label": row["label"]}).features
        say(rows.features["label"].names, rows.features["sentence"].dtype, list(rows.features),
            sorted(features), len(rows[3]["text"].split()))
    """) == [["0", "1"], "string", ["text"], ["label", "text"], 1024]


def test_python_itself_gets_no_made_up_text(made_up, tmp_path):
    """It asks each installed package for a file of entry points, while PyTorch is imported."""
    folder = tmp_path / "some-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Name: some\nVersion: 1.0\n")
    assert made_up(f"""
        import importlib.metadata
        [found] = importlib.metadata.distributions(path=["{tmp_path}"])
        say(found.read_text("entry_points.txt"), list(found.entry_points))
    """) == [None, []]
