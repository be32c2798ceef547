"""HolisticTraceAnalysis's results for the profiles here: writes ``hta_breakdowns.json``.

    pip install HolisticTraceAnalysis==0.5.0 'pandas<2.3'
    python tests/data/profiles/hta_breakdowns.py

HTA refuses profiles without a device.  Of kernels by name the five with most time are kept; all are
asked for, because HTA gives sums for extremes as soon as it leaves some out.
"""

from __future__ import annotations

import json
import lzma
import tempfile
from pathlib import Path

DATA = Path(__file__).resolve().parents[1]


def records(frame):
    """The rows of a data frame."""
    return json.loads(frame.to_json(orient="records"))


def breakdowns(path):
    """HTA's numbers of a file, with its own options but for the length of the list of kernels."""
    from hta.trace_analysis import TraceAnalysis

    analysis = TraceAnalysis(trace_files={0: str(path)})
    [temporal] = records(analysis.get_temporal_breakdown(visualize=False))
    idle = records(analysis.get_idle_time_breakdown(ranks=[0], visualize=False)[0])
    [overlap] = records(analysis.get_comm_comp_overlap(visualize=False))
    types, names = analysis.get_gpu_kernel_breakdown(
        visualize=False, num_kernels=10**6, include_memory_kernels=True
    )
    kernels = sorted(records(names), key=lambda row: -row["sum (us)"])[:5]
    return {
        "temporal": {name: value for name, value in temporal.items() if name.endswith("(us)")},
        "idle": [[row["stream"], row["idle_category"], row["idle_time"]] for row in idle],
        "overlap_percent": overlap["comp_comm_overlap_pctg"],
        "types": {row["kernel_type"]: row["sum"] for row in records(types)},
        "names": [
            [row["name"], row["sum (us)"], row["max (us)"], row["min (us)"]] for row in kernels
        ],
    }


def unpacked(path, folder):
    """Where HTA can read a profile: it knows gzip alone."""
    if path.suffix != ".xz":
        return path
    plain = Path(folder, path.stem)
    plain.write_bytes(lzma.decompress(path.read_bytes()))
    return plain


def main():
    """Write the file."""
    found = {}
    profiles = (*DATA.glob("profiles/*.json.gz"), *DATA.glob("profiles/*.json.xz"))
    for path in sorted(profiles) + sorted(DATA.glob("traces/resnet*.gz")):
        try:
            with tempfile.TemporaryDirectory() as folder:
                found[f"{path.parent.name}/{path.name}"] = breakdowns(unpacked(path, folder))
        except (AttributeError, IndexError, KeyError) as error:
            print(f"{path.name}: {error}")
    text = json.dumps(found, indent=0) + "\n"
    (DATA / "profiles" / "hta_breakdowns.json").write_text(text)


if __name__ == "__main__":
    main()
