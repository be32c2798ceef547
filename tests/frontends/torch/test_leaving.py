"""What a captured step may do with values that it does not have: log, check, save, hand out."""

from __future__ import annotations

import io
import json
import logging
import math

import pytest

torch = pytest.importorskip("torch")

import numpy as np  # noqa: E402

from flint.errors import FlintError  # noqa: E402
from tests.frontends.torch.in_child import in_child, record_in_child  # noqa: E402
from tests.support.shared import quick  # noqa: E402


def setup(mesh):
    device = mesh.device_type
    model = torch.nn.Linear(8, 4, device=device)
    labels = torch.randint(0, 4, (16,), device=device)
    return model, torch.randn(16, 8, device=device), labels


def recorded_with(read):
    """A training step that does something with its loss, model output and labels at its end."""

    def step(model, x, labels):
        out = model(x)
        loss = torch.nn.functional.cross_entropy(out, labels)
        loss.backward()
        read(loss, out, labels)

    return record_in_child(step, setup, (2,), ("dp",))


def told(recording, *words):
    here = [text for text in recording.warnings if "test_leaving.py:" in text]
    return any(all(word in text for word in words) for text in here)


FLOATS = {
    "a format": lambda loss, out, labels: f"{loss:.2f} {loss}",
    "str.format": lambda loss, out, labels: "{:.4f}".format(loss),  # noqa: UP032
    "percent": lambda loss, out, labels: "%.3f" % loss,  # noqa: UP031
    "logging": lambda loss, out, labels: logging.getLogger("x").warning("%s %.2f", loss, loss),
    "item": lambda loss, out, labels: json.dumps(round(loss.item(), 3)),
    "tolist": lambda loss, out, labels: loss.tolist(),
    "math": lambda loss, out, labels: math.sqrt(loss),
    "int": lambda loss, out, labels: int(loss),
    "a tensor of losses": lambda loss, out, labels: torch.tensor([loss, [loss.item()][0]]),
    "numpy": lambda loss, out, labels: loss.detach().cpu().numpy(),
    "asarray": lambda loss, out, labels: np.asarray(out.detach().cpu()),
    "force": lambda loss, out, labels: out.numpy(force=True),
}


@pytest.mark.parametrize("name", quick(FLOATS, "a format", "item", "numpy"))
def test_floats_that_are_read_are_1_and_it_says_where_and_what_to_do(name):
    recording = recorded_with(FLOATS[name])
    assert told(recording, "assumed to be 1.0", "branch on values that the host knows")


SHOWN = {
    "print": lambda loss, out, labels: print(loss, out, file=io.StringIO()),
    "repr": lambda loss, out, labels: (repr(loss), str(out)),
}


@pytest.mark.parametrize("name", SHOWN)
def test_tensors_are_shown_without_their_values(name):
    assert recorded_with(SHOWN[name]).ops


def test_whole_numbers_are_formatted_as_0_but_not_read():
    recording = recorded_with(lambda loss, out, labels: f"{labels.sum():d} {labels.sum()}")
    assert told(recording, "shown as 0")
    with pytest.raises(FlintError, match=r"test_leaving\.py:\d+.*if it is only shown.*float\("):
        recorded_with(lambda loss, out, labels: int(labels.sum()))
    with pytest.raises(FlintError, match=r"numpy array at .*test_leaving\.py:\d+"):
        recorded_with(lambda loss, out, labels: labels.cpu().numpy())


def test_a_whole_number_that_is_read_as_a_float_is_1():
    recording = recorded_with(lambda loss, out, labels: loss.item() / float(labels.sum()))
    assert told(recording, "an integer is read as a float", "test_leaving.py", "assumed to be 1.0")


def test_checks_of_broken_losses_pass():
    def read(loss, out, labels):
        assert torch.isfinite(loss) and torch.isfinite(out).all()
        if torch.isnan(loss) or out.isnan().any() or torch.isinf(loss):
            raise ValueError("broken")
        assert torch.allclose(out, out) and torch.equal(labels, labels)

    recording = recorded_with(read)
    assert told(recording, "assuming that all numbers are finite")
    assert told(recording, "assumed to be equal")


def test_what_is_not_finite_by_the_users_doing_is_not_asked():
    """A mask of a known tensor stays what the program makes of it."""

    def read(loss, out, labels):
        finite = torch.isfinite(out)
        finite[0] = False
        if finite.all():
            raise ValueError("overwritten")

    assert recorded_with(read).ops


def test_saving_a_checkpoint_writes_nothing(tmp_path):
    path = tmp_path / "model.pt"
    recording = recorded_with(lambda loss, out, labels: torch.save({"loss": loss}, path))
    assert told(recording, "torch.save", "writes nothing")
    assert not path.exists()


def test_a_distributed_checkpoint_is_neither_written_nor_read(tmp_path):
    def read(loss, out, labels):
        import torch.distributed.checkpoint as dcp
        from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions

        state = {"loss": loss}
        stager = DefaultStager(StagingOptions(False, False, True, False))
        dcp.save(state, checkpoint_id=tmp_path / "a")
        dcp.async_save(state, checkpoint_id=tmp_path / "b").result()
        staged = dcp.async_save(state, checkpoint_id=tmp_path / "c", async_stager=stager)
        staged.staging_completion.result()
        staged.upload_completion.result()
        dcp.load(state, checkpoint_id=tmp_path)
        assert state["loss"] is loss

    recording = recorded_with(read)
    assert not list(tmp_path.iterdir())
    assert told(recording, "distributed checkpoint", "is not written")
    assert told(recording, "distributed checkpoint", "restored without its values")


def test_numpy_refuses_what_pytorch_refuses():
    def read(loss, out, labels):
        for wrong, tensor in ((TypeError, out.detach()), (RuntimeError, out.cpu())):
            with pytest.raises(wrong):
                tensor.numpy()

    assert recorded_with(read).ops


def found_array():
    from flint.frontends.torch.session import record

    found = []

    def step(x):
        found.append(x.cpu().numpy())
        return x + 1

    record(step, lambda mesh: (torch.zeros(2, 3, device=mesh.device_type),), (1,), ("dp",), 0)
    array = found[-1]
    return [list(array.shape), str(array.dtype), float(array.mean())]


def test_an_array_has_the_tensors_shape_and_dtype():
    assert list(in_child(found_array)) == [(2, 3), "float32", 1.0]


def test_the_host_waits_for_a_copy_to_it_before_it_continues():
    """An op on another stream that is issued after ``.cpu()`` comes after what was copied."""

    def waits(copy):
        def run(x):
            side = torch.cuda.Stream()
            y = x * 2
            copy(y)
            with torch.cuda.stream(side):
                z = x + 1
            return y, z

        ops = record_in_child(
            run, lambda mesh: (torch.ones(4, device=mesh.device_type),), (1,), ("dp",)
        ).ops
        [copied] = [n for n, op in enumerate(ops) if op.name == "aten._to_copy.default"]
        [other] = [op for op in ops if op.name == "aten.add.Tensor"]
        return copied in other.after

    assert waits(lambda y: y.cpu())
    assert not waits(lambda y: y.to("cpu", non_blocking=True))


def device_of_a_number():
    from flint.frontends.torch.session import record

    found = []

    def step(x):
        with torch.device(x.device):
            found.append(torch.tensor(0).device.type)
        return x + 1

    record(step, lambda mesh: (torch.zeros(2, device=mesh.device_type),), (1,), ("dp",), 0)
    return found[-1]


def test_a_number_made_within_a_default_device_is_on_it():
    """As batch norm's count of batches, which DDP broadcasts."""
    assert in_child(device_of_a_number) == "flint"  # the recorded one, not the CPU
