"""How well curves predict kernels that were timed on a TPU v4 by others.

    git clone https://github.com/yutation/SCALE-SIM_Validation
    python benchmarks/calibration/tpu_v4.py SCALE-SIM_Validation

The measurements are those of "SCALE-Sim TPU: Validating and Extending SCALE-Sim for TPUs" (Dang et
al., 2026, arXiv 2603.22535): f16 products, sums, products of elements and ReLU, each the mean of
20 runs in microseconds.  They come with no licence, so they are not part of this repository.  The
script writes them as ``flint calibrate`` reads them, fits, and prints the table in
docs/calibration.md.
"""

from __future__ import annotations

import csv
import re
import sys
import tempfile
from pathlib import Path

import numpy as np

from flint.calibration.fitting import Group, calibrate
from flint.calibration.kernels import read_kernels
from flint.cost.accelerators import load_accelerator

#: File -> op and how many operands it has.
ELEMENTWISE = {
    "data_add_1d_1/kernel_statistics_filtered.csv": ("add", 2),
    "data_add_2d_1/kernel_statistics_filtered.csv": ("add", 2),
    "data_add1/kernel_statistics_filtered.csv": ("add", 2),
    "data_mul1/kernel_statistics_filtered_mul.csv": ("mul", 2),
    "data_relu1/kernel_statistics_filtered.csv": ("relu", 1),
}
PRODUCTS = (
    "data_matmul2/kernel_report_updated.csv",
    "data_matmul5/kernel_report_updated_2.csv",
    "data_matmul6/kernel_report_updated6.csv",
    "data_matmul7/fusion_report.csv",
)


def rows(path: Path) -> list[dict[str, str]]:
    """The lines of a CSV file, without blanks around names and cells."""
    with path.open(newline="") as file:
        return [
            {name.strip(): cell.strip() for name, cell in row.items() if name}
            for row in csv.DictReader(file)
        ]


def write(checkout: Path, path: Path) -> None:
    """All measurements as one file."""
    with path.open("w", newline="") as file:
        lines = csv.writer(file)
        lines.writerow(("op", "shapes", "type", "seconds"))
        for name, (op, operands) in ELEMENTWISE.items():
            for row in rows(checkout / "data" / name):
                shape = "x".join(re.findall(r"\d+", row["kernel_name"].partition("_")[2]))
                seconds = float(row["avg_duration_us"]) * 1e-6
                lines.writerow((op, " ".join([shape] * operands), "f16", seconds))
        for name in PRODUCTS:
            for row in rows(checkout / "data" / name):
                m, n, k = re.findall(r"\d+", row["kernel_name"])
                if row["fusion_avg"]:
                    seconds = float(row["fusion_avg"]) * 1e-6
                    lines.writerow(("matmul", f"{m}x{k} {k}x{n}", "f16", seconds))


def affine(group: Group) -> float:
    """Median error on the held-out half of latency + work / rate, fitted by relative squares."""
    work = np.array(
        [
            np.prod(k.operands[0]) * (k.operands[1][-1] if k.kind == "matmul" else 1.0)
            for k in group.kernels
        ]
    )
    measured = np.array([kernel.seconds for kernel in group.kernels])
    columns = np.stack([np.ones_like(work), work], axis=1) / measured[:, None]
    fitted = group.fitted
    numbers = np.linalg.lstsq(columns[fitted], np.ones(fitted.sum()), rcond=None)[0]
    return float(np.median(np.abs(columns[~fitted] @ numbers - 1)))


def main(checkout: Path) -> None:
    """Print the table."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tpu-v4.csv"
        write(checkout, path)
        found = calibrate(read_kernels(path), load_accelerator("tpu-v4"))
    print("class        held out  median    90%  largest  affine  uncalibrated")
    for group in found.groups:
        held = group.held_out
        print(
            f"{group.curve.kernel:<12} {held.count:>8}  {held.median:>6.1%} {held.ninetieth:>6.1%}"
            f"  {held.largest:>+7.0%}  {affine(group):>6.1%}  {group.before.median:>12.1%}"
        )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
