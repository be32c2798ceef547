"""Fuzzing that follows coverage, by atheris (a dependency of nothing else; pip installs it).

The idea: libFuzzer keeps each input that runs a line of Flint that none before it ran, and damages
it further; how it is damaged is said by our mutations, which know the format. Defects are kept as
`make fuzz` keeps them, and the run goes on; the corpus grows in build/fuzz/corpus/READER.

    python -m tests.fuzz.guided kineto -max_total_time=3600
"""

from __future__ import annotations

import sys
import tempfile
from importlib import import_module
from pathlib import Path
from random import Random

import atheris

with atheris.instrument_imports(include=["flint"]):
    for module in ("capturing.saved_files", "observed.reading", "post_execution.converting"):
        import_module(f"flint.{module}")

from tests.fuzz.readers import READERS
from tests.fuzz.running import FINE, SECONDS, keep_smallest, outcome_of

FOUND = Path("build/fuzz")


def main(name: str, options: list[str]) -> None:
    """Fuzz one reader of single files until the options say that it is enough."""
    reader = READERS[name]
    if reader.mutation is None:
        raise SystemExit(f"{name} reads folders; `python -m tests.fuzz {name}` damages those")
    mutate = reader.mutation
    corpus = FOUND / "corpus" / name
    corpus.mkdir(parents=True, exist_ok=True)
    for seed in reader.seeds:
        (corpus / seed.name).write_bytes(seed.read_bytes())
    folder = tempfile.TemporaryDirectory(prefix="flint-fuzz-")
    path = Path(folder.name) / reader.seeds[0].name

    def one_input(data: bytes) -> None:
        path.write_bytes(data)
        outcome = outcome_of(reader, path)
        if outcome.kind not in FINE:
            keep_smallest(FOUND, name, outcome, data)

    def damaged(data: bytes, most: int, seed: int) -> bytes:
        return bytes(mutate(bytes(data), Random(seed))[:most])

    limits = [
        f"-timeout={SECONDS}",
        "-rss_limit_mb=3072",
        "-max_len=262144",
        f"-artifact_prefix={FOUND}/",
    ]
    atheris.Setup([sys.argv[0], str(corpus), *limits, *options], one_input, custom_mutator=damaged)
    atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
