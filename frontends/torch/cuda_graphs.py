"""CUDA graphs: what a program captures once, and runs whenever it replays it.

The idea: a GPU runs nothing while a graph is captured.  So the ops, the streams' waits and the
steps of optimizers in between are written down with the tensors that they take and give, and each
replay does them again, in the step or before it.  The tensors are the graph's own, at the same
addresses every time, so that what the program writes into one before a replay is read by it.

    graphs = CudaGraphs(seen, tracker, lambda: recorder)
    with graphs.capturing(): ...      # torch.cuda.CUDAGraph, torch.cuda.make_graphed_callables
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from dataclasses import replace as replaced
from functools import partial
from typing import Any

import torch
from torch.cuda import graphs as torch_graphs
from torch.utils._pytree import tree_map

from flint.frontends.torch.cluster import device
from flint.frontends.torch.cluster.streams import START, Moment, Timeline
from flint.frontends.torch.patching import replace
from flint.frontends.torch.rank_process import Seen
from flint.frontends.torch.recording.recorder import Recorder
from flint.frontends.torch.recording.tracking import Tracker
from flint.frontends.torch.shims import attention, work


@dataclass(slots=True)
class _Replay:
    """A graph that runs on the current stream.

    Attributes:
        origin: number of the stream on which it was captured.
        recorder: records now, if anything does.
        moments: those of the capture, by their ids -> as they are in this replay.
    """

    origin: Hashable
    recorder: Callable[[], Recorder | None]
    moments: dict[int, Moment] = field(default_factory=dict)

    def number(self, stream: Hashable) -> Hashable:
        """The number of a stream of the capture."""
        return device.current_stream().stream_id if stream == self.origin else stream

    def on(self, stream: device.Stream) -> contextlib.AbstractContextManager[Any]:
        """Within it, ops are issued on a stream of the capture."""
        return contextlib.nullcontext() if stream.stream_id == self.origin else stream


#: What names a graph's memory pool; each graph keeps its own tensors.
_POOL = (0, 0)
#: A part of a graph.
_Part = Callable[[_Replay], None]


class _Line(Timeline):
    """The order of streams while a graph is captured: written down."""

    def __init__(self, parts: list[_Part]) -> None:
        super().__init__()
        self._parts = parts

    def moment(self, stream: Hashable) -> Moment:
        found: dict[Hashable, int] = {}

        def again(replay: _Replay) -> None:
            replay.moments[id(found)] = device.timeline().moment(replay.number(stream))

        self._parts.append(again)
        return found

    def wait(self, stream: Hashable, moment: Moment) -> None:
        def again(replay: _Replay) -> None:
            reached = replay.moments.get(id(moment), START)
            device.timeline().wait(replay.number(stream), reached)

        self._parts.append(again)


class _Writer(Recorder):
    """A recorder that writes down what another one is to note."""

    def __init__(self, tracker: Tracker, seen: Seen, parts: list[_Part]) -> None:
        super().__init__(tracker, device.NAME, attention.WHOLE, seen.follow)
        self._parts = parts

    def note(self, *op: Any) -> None:
        stream, op = device.current_stream(), _aliased(op)

        def again(replay: _Replay) -> None:
            recorder = replay.recorder()
            if recorder is not None:
                before = len(recorder.ops)
                with replay.on(stream):
                    recorder.note(*op)
                recorder.ops[before:] = [
                    replaced(new, graphed=True) for new in recorder.ops[before:]
                ]

        self._parts.append(again)


def _aliased(op: Any) -> Any:
    """An op on aliases of its tensors: autograd takes over a gradient that nothing else holds."""
    seen: dict[int, torch.Tensor] = {}

    def alias(item: Any) -> Any:
        if not isinstance(item, torch.Tensor):
            return item
        if id(item) not in seen:
            seen[id(item)] = item.detach()
        return seen[id(item)]

    return tree_map(alias, op)


class CudaGraphs:
    """The graphs of a program.

    Attributes:
        parts: of the graph that is being captured; None if there is none.
    """

    def __init__(
        self, seen: Seen, tracker: Tracker, recorder: Callable[[], Recorder | None]
    ) -> None:
        """Graphs of the ops that ``seen`` sees.

        Args:
            seen: the observers of every op.
            tracker: gives the module, phase and line of an op.
            recorder: records now, if anything does.
        """
        self.parts: list[_Part] | None = None
        self.recorder = recorder
        self._seen, self._tracker = seen, tracker
        self._undo = contextlib.ExitStack()

    @contextlib.contextmanager
    def capturing(self) -> Iterator[None]:
        """Within it, programs can capture graphs, and wait for collectives."""
        kind = type("CUDAGraph", (_Graph,), {"graphs": self})
        with contextlib.ExitStack() as stack:
            for owner in (torch.cuda, torch_graphs):
                stack.callback(replace(owner, "CUDAGraph", kind))
                stack.callback(replace(owner, "is_current_stream_capturing", self._is_capturing))
                stack.callback(replace(owner, "graph_pool_handle", lambda: _POOL))
            stack.enter_context(work.waiting(self.waited))
            yield

    def _is_capturing(self) -> bool:
        return self.parts is not None

    def waited(self, item: Any) -> None:
        """The current stream waits for a collective."""
        if self.parts is not None:
            self.parts.append(partial(_wait_again, device.current_stream(), item))
            return
        recorder = self.recorder()
        if recorder is not None:
            recorder.wait_work(item)

    def later(self, hook: Callable[..., None]) -> Callable[..., None]:
        """A hook that is called at a replay of what would call it in a capture."""

        def called(*args: Any) -> None:
            if self.parts is None:
                hook(*args)
            else:
                self.parts.append(lambda _: hook(*args))

        return called

    def begin(self) -> list[_Part]:
        """Write down what is dispatched from now on, until the end."""
        if self.parts is not None:
            raise RuntimeError("CUDA graphs: a capture is already underway in this process")
        parts: list[_Part] = []
        self.parts = parts
        self._undo.callback(device.use(_Line(parts)))
        self._undo.callback(setattr, self._seen, "by", self._seen.by)
        self._seen.by = _Writer(self._tracker, self._seen, parts).see
        return parts

    def end(self) -> None:
        """The capture has ended."""
        self._undo.close()
        self.parts = None


def _wait_again(stream: device.Stream, item: Any, replay: _Replay) -> None:
    recorder = replay.recorder()
    if recorder is not None:
        with replay.on(stream):
            recorder.wait_work(item)


class _Graph:
    """As ``torch.cuda.CUDAGraph``."""

    graphs: CudaGraphs

    def __init__(self, keep_graph: bool = False) -> None:
        self._parts: list[_Part] = []
        self._origin: Hashable = 0

    def capture_begin(self, *_: Any, **__: Any) -> None:
        """Begin to capture what is issued."""
        self._origin = device.current_stream().stream_id
        self._parts = self.graphs.begin()

    def capture_end(self) -> None:
        """End the capture."""
        self.graphs.end()

    def replay(self) -> None:
        """Run what was captured."""
        replay = _Replay(self._origin, self.graphs.recorder)
        for part in self._parts:
            part(replay)

    def reset(self) -> None:
        """Let go of what was captured."""
        self._parts = []

    def pool(self) -> tuple[int, int]:
        """The number of the graph's memory pool."""
        return _POOL

    def instantiate(self) -> None:
        """Nothing is left to be made."""

    def enable_debug_mode(self) -> None:
        """Nothing is to be shown."""

    def debug_dump(self, debug_path: str) -> None:
        """Nothing is shown."""
