"""One program of ``programs/``, compiled and timed on the GPU: ``python measure.py NAME OUT``.

A function ``init`` of the program is not compiled: its result's arrays are filled here, so that the
time goes into the step.  Writes ``OUT/NAME.json`` (times, memory, XLA's own counts), the compiled
module, a profile of two steps and, with ``--dumps``, XLA's dumps.  Compiling and timing hold a
lock, so that a second program can start.
"""

import fcntl
import gzip
import importlib
import json
import lzma
import os
import pathlib
import statistics
import sys
import threading
import time

name, out = sys.argv[1], pathlib.Path(sys.argv[2])
tiny = "--tiny" in sys.argv
out.mkdir(parents=True, exist_ok=True)
dumps = out / "dumps" / name
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
if "--dumps" in sys.argv:
    os.environ["XLA_FLAGS"] = (
        f"{os.environ.get('XLA_FLAGS', '')} --xla_dump_to={dumps} --xla_dump_hlo_as_text "
        "--xla_dump_hlo_module_re=.*train_step.* --xla_dump_hlo_pass_re=priority-fusion "
        f"--xla_gpu_dump_autotune_results_to={dumps}/autotune.txt"
    )
    dumps.mkdir(parents=True, exist_ok=True)
began = time.monotonic()

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402

found = {"name": name, "jax": jax.__version__, "device": jax.devices()[0].device_kind}


def note(**values):
    """Write what is known so far."""
    found.update(values, at=round(time.monotonic() - began, 2))
    (out / f"{name}.json").write_text(json.dumps(found, indent=1, default=str) + "\n")


def stats(key):
    """A figure of the allocator."""
    return (jax.devices()[0].memory_stats() or {}).get(key, 0)


class Watcher(threading.Thread):
    """Bytes in use at most, and the GPU's clock and power, while steps run."""

    def __init__(self):
        super().__init__(daemon=True)
        self.stop, self.most, self.readings = False, 0, []

    def run(self):
        try:
            import pynvml

            pynvml.nvmlInit()
            gpu = pynvml.nvmlDeviceGetHandleByIndex(0)
        except Exception:
            gpu = None
        turn = 0
        while not self.stop:
            self.most = max(self.most, stats("bytes_in_use"))
            if gpu is not None and turn % 20 == 0:
                clock = pynvml.nvmlDeviceGetClockInfo(gpu, pynvml.NVML_CLOCK_SM)
                memory = pynvml.nvmlDeviceGetClockInfo(gpu, pynvml.NVML_CLOCK_MEM)
                power = pynvml.nvmlDeviceGetPowerUsage(gpu) / 1000
                self.readings.append((clock, memory, power))
            turn += 1
            time.sleep(0.001)


_jit, _zeros = jax.jit, {"mu", "nu", "count", "trace", "step", "v", "v_row", "v_col"}


def jit(function=None, **options):
    """jax.jit, but what ``init`` returns is filled with numbers and not computed."""
    if function is None or getattr(function, "__name__", "") != "init":
        return _jit(function, **options) if function is not None else _jit(**options)
    return lambda *arguments: filled(jax.eval_shape(function, *arguments))


def filled(shapes):
    """Arrays of the shapes: matrices random, scales 1, biases and the optimizer's state 0."""
    block = 0.02 * np.random.default_rng(0).standard_normal(1 << 24, dtype=np.float32)

    def array(path, x):
        names = [str(getattr(k, "name", getattr(k, "key", ""))) for k in path]
        if jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key):
            return jax.random.key(0)
        if x.dtype.kind in "iub" or _zeros & set(names):
            return jnp.zeros(x.shape, x.dtype)
        if len(x.shape) < 2:
            zero = any(name in ("b", "bias", "mean") or name.endswith("_b") for name in names)
            return jnp.full(x.shape, 0.0 if zero else 1.0, x.dtype)
        return jnp.asarray(np.resize(block, x.shape)).astype(x.dtype)

    return jax.tree_util.tree_map_with_path(array, shapes)


jax.jit = jit
sys.path.insert(0, str(pathlib.Path(__file__).parent / "programs"))
train_step, state, batch = importlib.import_module(name).build(tiny)
jax.block_until_ready(state)
note(after_init_in_use=stats("bytes_in_use"), after_init_peak=stats("peak_bytes_in_use"))
lowered = train_step.lower(state, batch)
with gzip.open(out / f"{name}.stablehlo.txt.gz", "wt") as file:
    file.write(lowered.as_text())
note(lowered_s=round(time.monotonic() - began, 2))

lock = (out / "lock").open("w")
fcntl.flock(lock, fcntl.LOCK_EX)
start = time.monotonic()
compiled = lowered.compile()
note(compile_s=round(time.monotonic() - start, 2), after_compile_peak=stats("peak_bytes_in_use"))
with gzip.open(out / f"{name}.hlo.txt.gz", "wt") as file:
    file.write(compiled.as_text())
memory = compiled.memory_analysis()
sizes = [k for k in dir(memory) if k.endswith("_in_bytes")]
note(memory_analysis={k: getattr(memory, k) for k in sizes}, cost_analysis=compiled.cost_analysis())

for _ in range(3):
    state, loss = compiled(state, batch)
    loss.block_until_ready()
start = time.monotonic()
state, loss = compiled(state, batch)
loss.block_until_ready()
first = time.monotonic() - start
count = 3 if tiny else max(6, min(60, int(0.7 / first)))

watcher = Watcher()
watcher.start()
chained = []
for _ in range(3):
    jax.block_until_ready(state)
    start = time.perf_counter()
    for _ in range(count):
        state, loss = compiled(state, batch)
    jax.block_until_ready((state, loss))
    chained.append((time.perf_counter() - start) / count)
blocking = []
for _ in range(max(12, count // 2)):
    start = time.perf_counter()
    state, loss = compiled(state, batch)
    jax.block_until_ready((state, loss))
    blocking.append(time.perf_counter() - start)
watcher.stop = True
watcher.join()
note(
    loss=float(loss),
    chained_s=chained,
    chained_steps=count,
    blocking_s=blocking,
    median_s=statistics.median(blocking),
    min_s=min(blocking),
    max_s=max(blocking),
    most_in_use=watcher.most,
    peak_bytes_in_use=stats("peak_bytes_in_use"),
    bytes_limit=stats("bytes_limit"),
    readings=watcher.readings[:: max(1, len(watcher.readings) // 40)],
)

options = jax.profiler.ProfileOptions()
options.python_tracer_level = 0
trace = out / "trace" / name
jax.profiler.start_trace(str(trace), profiler_options=options)
for _ in range(2):
    state, loss = compiled(state, batch)
jax.block_until_ready((state, loss))
jax.profiler.stop_trace()
fcntl.flock(lock, fcntl.LOCK_UN)
for path in trace.rglob("*.xplane.pb"):
    data = path.read_bytes()
    (out / f"{name}.xplane.pb.xz").write_bytes(lzma.compress(data, preset=2))
    note(xplane_bytes=len(data))
note(done=True)
