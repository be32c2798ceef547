"""A profile may take so much memory when it is read and no more, whatever it becomes."""

import json
import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from flint.errors import FlintError
from flint.host.reading_memory import SLACK, allowed
from flint.observed.reading import read_trace
from tests.converters.profilers.nsys_exports import Export
from tests.converters.profilers.rocprof_files import Profile
from tests.converters.profilers.rocprof_tables import tables
from tests.support.command_line import failed, flint

SEEDS = Path(__file__).parents[1] / "fuzz/seeds"
MIB = 1 << 20
LIMIT = 4 * MIB

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Linux limits what is allocated")


def kineto(folder):
    event = {"ph": "X", "cat": "cpu_op", "pid": 1, "tid": 1, "dur": 1}
    events = [{**event, "name": f"aten::op{i}", "ts": 2 * i} for i in range(40_000)]
    path = folder / "rank0.json"
    path.write_text(json.dumps({"traceEvents": events, "distributedInfo": {"rank": 0}}))
    return path


def pytorch_et(folder):
    nothing = {"values": [], "shapes": [], "types": []}
    nodes = [
        {"id": i + 2, "name": f"aten::op{i}", "ctrl_deps": 1, "inputs": nothing,
         "outputs": nothing, "attrs": [{"name": "rf_id", "type": "uint64", "value": i}]}
        for i in range(20_000)
    ]  # fmt: skip
    path = folder / "et_rank0.json"
    path.write_text(json.dumps({"schema": "1.1.1-chakra.0.0.4", "pid": 1, "nodes": nodes}))
    return path


def nsys(folder):
    export = Export(folder / "report.sqlite")
    for i in range(20_000):
        export.kernel(3 * i, 3 * i + 1, 1, f"kernel{i}")
    return export.write()


def rocprof(folder):
    profile = Profile(folder / "908_results.json")
    for i in range(20_000):
        profile.kernel(3 * i, 3 * i + 1, 1, f"kernel{i}")
    return profile.write()


def rocprof_csv(folder):
    profile = Profile(folder / "x")
    for i in range(20_000):
        profile.kernel(3 * i, 3 * i + 1, 1, f"kernel{i}")
    return tables(profile, folder) / "908_kernel_trace.csv"


def xplane(folder):
    path = folder / "host.xplane.pb"
    path.write_bytes((SEEDS / "gpu_conditional.xplane.pb").read_bytes() * 400)
    return path


def chakra(folder):
    traces = sorted((SEEDS / "folder/et").glob("*.et"))
    data = traces[0].read_bytes()
    metadata, nodes = data[: 1 + data[0]], data[1 + data[0] :]  # one byte is its length
    path = folder / "trace.0.et"
    path.write_bytes(metadata + nodes * (4 * MIB // len(nodes)))
    return path


FILES = (kineto, pytorch_et, nsys, rocprof, rocprof_csv, xplane, chakra)

READ = """
import sys
from pathlib import Path
from flint.errors import FlintError
from flint.host.reading_memory import SLACK, allowed
from flint.observed.reading import form_of, read_trace
from flint.post_execution.converting import convert_traces
from flint import registry

path, limit = Path(sys.argv[1]), int(sys.argv[2])
linked = {"nsys-ops": "nsys-links", "rocprof-ops": "rocprof-links"}
registry.converter(linked.get(form_of(path), form_of(path)))
def peak():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM"))
before = peak()
try:
    with allowed(limit):
        read_trace(path) if path.suffix == ".et" else convert_traces([path], memory_limit=limit)
    print("read")
except FlintError as error:
    print(error)
print(peak() - before)
"""


def reading(path, limit):
    """The result of reading a file in a separate process, and the bytes by which that grows."""
    done = subprocess.run(
        [sys.executable, "-c", READ, path, str(limit)], capture_output=True, text=True, check=False,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    said, grown = done.stdout.splitlines()
    return said, int(grown)


@pytest.mark.parametrize("make", FILES, ids=lambda make: make.__name__)
def test_what_takes_more_than_the_limit_is_refused_in_one_line(make, tmp_path):
    path = make(tmp_path)
    said, grown = reading(path, LIMIT)
    assert said.startswith(f"{path}: reading it takes more than 0.00390625 GiB of memory")
    assert "--memory-limit" in said
    assert grown < LIMIT + SLACK + 4 * MIB  # what was free before may be used, too


@pytest.mark.thorough
@pytest.mark.parametrize("make", FILES[:2], ids=lambda make: make.__name__)
def test_a_file_is_refused_up_to_a_limit_and_read_from_there_on(make, tmp_path):
    path = make(tmp_path)
    refused = ["takes more than" in reading(path, MIB << power)[0] for power in (0, 1, 4, 7)]
    assert refused == sorted(refused, reverse=True)  # up to a limit, and from there on never
    assert refused[0] and not refused[-1]


@pytest.mark.parametrize(
    "command",
    [("convert", "-o", "out"), ("explain",), ("calibrate", "--accelerator", "h100-sxm",
                                              "-o", "out.toml")],
    ids=lambda command: command[0],
)  # fmt: skip
def test_the_option_is_what_a_command_may_take(command, tmp_path):
    path = kineto(tmp_path)
    line = failed(flint(command[0], path, *command[1:], "--memory-limit", 0.01, cwd=tmp_path), 1)
    assert f"{path}: reading it takes more than 0.01 GiB of memory" in line


def test_validate_has_the_option(tmp_path):
    path = kineto(tmp_path)
    line = failed(flint("validate", SEEDS / "folder", "--trace", path, "--memory-limit", 0.01), 1)
    assert "takes more than 0.01 GiB" in line


def test_check_refuses_a_trace_that_takes_more(tmp_path):
    path = chakra(tmp_path)
    done = flint("check", tmp_path, "--memory-limit", 0.004)
    assert done.returncode == 1
    assert f"{path}: reading it takes more than 0.004 GiB of memory" in done.stdout
    assert "reading it takes more" not in flint("check", tmp_path).stdout


def test_without_a_limit_any_number_of_bytes_may_be_taken(tmp_path):
    with allowed(None):
        assert read_trace(xplane(tmp_path)).form == "xplane"


def test_a_profile_whose_native_reader_ends_its_process_is_one_line(tmp_path, monkeypatch):
    from flint.converters.profilers.xplane import events

    class Ends:
        @staticmethod
        def from_serialized_xspace(_):
            os.abort()

    monkeypatch.setattr(events, "ProfileData", Ends)
    path = xplane(tmp_path)
    with pytest.raises(FlintError) as error:
        read_trace(path)
    assert str(error.value) == f"{path}: damaged: the process that read it died of SIGABRT"


def test_what_a_native_reader_warns_of_is_no_error_where_warnings_are(tmp_path, monkeypatch):
    """As jax 0.12 does in Python 3.12, of a type of its own."""
    from flint.converters.profilers.xplane import events

    read = events.ProfileData.from_serialized_xspace

    class Warns:
        @staticmethod
        def from_serialized_xspace(data):
            warnings.warn("builtin type has no __module__", DeprecationWarning, stacklevel=2)
            return read(data)

    monkeypatch.setattr(events, "ProfileData", Warns)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert read_trace(xplane(tmp_path)).form == "xplane"
