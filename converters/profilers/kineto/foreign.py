"""Why a Chrome trace has no ops and no kernels: who wrote it, and what to give instead.

The idea: many tools write the form that PyTorch's profiler writes.  PyTorch's says so by the keys
around its events, others by theirs; where neither does, the trace is another tool's all the same.

    why_empty(path, {"viztracer_metadata": {}}, {})
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final

from flint.observed.reading import head_of

_UNFINISHED: Final = "export before the schedule's cycle ends"
#: What PyTorch's profiler writes around its events, or about its process.
_TORCH: Final = ("schemaVersion", "deviceProperties", "PyTorch Profiler", "Record Window End")
#: What is written by others -> who that is, and what has the ops.
_PRODUCERS: Final = {
    "viztracer_metadata": "VizTracer's, of Python's calls",
    "highres-ticks": "the trace viewer's of JAX's or TensorFlow's profiler: give the .xplane.pb "
    "beside it",
    "beginningOfTime": "Clang's (-ftime-trace), of compiling",
    "/job:localhost": "TensorFlow's timeline: profile with tf.profiler.experimental and give its "
    ".xplane.pb",
    "session_initialization": "ONNX Runtime's: profile it with Nsight Systems or rocprofv3",
    "trace-config": "the Chrome browser's",
    "clock-domain": "the Chrome browser's",
}
_PYTORCH_ALONE: Final = (
    "give what torch.profiler's export_chrome_trace or tensorboard_trace_handler writes"
)


def why_empty(path: Path, around: Collection[str], left_out: Mapping[str, int]) -> str:
    """Why no op and no kernel was found in a trace.

    Args:
        path: the trace.
        around: the keys around its events.
        left_out: why events are left out -> how many.
    """
    head = head_of(path).decode(errors="replace")

    def has(mark: str) -> bool:
        return mark in around or mark in head

    counted = [f"{text} ({count:,} times)" for text, count in left_out.items()]
    if any(map(has, _TORCH)) or '"ph"' not in head:
        return "; ".join(counted) or _UNFINISHED
    who = next((text for mark, text in _PRODUCERS.items() if has(mark)), "another tool's")
    what = who if ": " in who else f"{who}: {_PYTORCH_ALONE}"
    return "; ".join([f"no event of PyTorch's profiler: the trace is {what}", *counted])
