"""Calls to a GPU and its profiler other than work do not change the work."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from tests.frontends.torch.in_child import recorded  # noqa: E402


def build(mesh):
    return nn.Linear(64, 64, device="cuda"), torch.randn(8, 64, device="cuda")


def on_a_stream(model, x, told=True):
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        y = model(x)
    if told:
        y.record_stream(stream)
    torch.cuda.current_stream().wait_stream(stream)
    y.sum().backward()


def by_number(model, x):
    """As packages of kernels ask for the stream, which import the function beforehand."""
    from torch._C import _cuda_getCurrentRawStream

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        assert _cuda_getCurrentRawStream(0) == stream.stream_id
    on_a_stream(model, x)


def unrecorded(model, x):
    on_a_stream(model, x, told=False)


def plain(model, x):
    model(x).sum().backward()


def marked(model, x):
    torch.cuda.cudart().cudaProfilerStart()
    with torch.cuda.nvtx.range("step"):
        torch.cuda.nvtx.mark("here")
        plain(model, x)
    torch.cuda.profiler.stop()


def drawn(model, x):
    """A batch of rows that the host draws, one by one."""
    data = torch.randn(100, 64)
    rows = torch.stack([data[row] for row in torch.randint(len(data), (8,))])
    first = data[int(torch.randperm(100)[0])]
    plain(model, rows.cuda() + first.cuda())


def given(model, x):
    plain(model, torch.randn(8, 64).cuda() + torch.randn(64).cuda())


def without_gradients(model, x):
    with torch.no_grad():
        return model(x) * torch.tensor(3, device="cuda", dtype=torch.long)


def in_inference_mode(model, x):
    with torch.inference_mode():
        return model(x) * torch.tensor(3, device="cuda", dtype=torch.long)


@pytest.mark.parametrize(
    ("step", "same"),
    [
        (on_a_stream, unrecorded), (by_number, unrecorded), (marked, plain), (drawn, given),
        (in_inference_mode, without_gradients),
    ],
)  # fmt: skip
def test_the_work_is_that_of_a_step_that_does_not_tell(step, same):
    ops, wanted = (recorded(each, build, (2,), ("dp",)).ops for each in (step, same))
    assert ops and [described(op) for op in ops] == [described(op) for op in wanted]


def described(op):
    views = [item for item in (*op.args, *op.results) if hasattr(item, "shape")]
    shapes = [(item.shape, item.dtype) for item in views]
    return op.name, shapes, op.stream, op.after, op.phase
