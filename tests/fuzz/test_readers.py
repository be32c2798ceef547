"""A reader of untrusted files comes back or refuses, whatever it is given: docs/reliability.md.

`make fuzz` does this for hours; here each reader has a few inputs, the same in every run, and each
input that was once a defect.
"""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from tests.fuzz import mutations
from tests.fuzz.readers import READERS, copied
from tests.fuzz.running import FINE, outcome_of, run
from tests.support.shared import quick

REGRESSIONS = sorted((Path(__file__).parent / "regressions").glob("*/*"))
#: Inputs of each reader in a test run; a reader that starts a process for each has fewer.
INPUTS = {"mlir": 4}


@pytest.mark.parametrize("name", quick(list(READERS), *(set(READERS) - set(INPUTS))))
def test_a_damaged_input_is_read_or_refused(name: str) -> None:
    counts = run(name, range(INPUTS.get(name, 60)))
    assert {outcome for outcome in counts if outcome.kind not in FINE} == set()


@pytest.mark.parametrize("path", REGRESSIONS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_an_input_that_was_a_defect_is_read_or_refused(path: Path, tmp_path: Path) -> None:
    """Its folder is READER, or READER@FILE for the damaged file of a folder."""
    name, _, file = path.parent.name.partition("@")
    seed = copied(READERS[name].seeds[0], tmp_path) if file else path
    if file:
        (seed / file.replace("+", "/")).write_bytes(path.read_bytes())
    assert outcome_of(READERS[name], seed).kind in FINE


@pytest.mark.parametrize("name", quick(list(READERS), "kineto", "chakra", "hlo-proto"))
def test_mutations_change_most_inputs_and_the_same_numbers_give_the_same(name: str) -> None:
    reader = READERS[name]
    if reader.mutation is None:
        pytest.skip("its files are damaged by their endings")
    data = reader.seeds[0].read_bytes()
    made = [reader.mutation(data, Random(number)) for number in range(40)]
    assert made == [reader.mutation(data, Random(number)) for number in range(40)]
    assert len(set(made)) > 20


def test_a_protobuf_message_that_is_not_changed_is_written_as_it_was() -> None:
    for seed in READERS["hlo-proto"].seeds:
        fields = mutations.fields_of(seed.read_bytes())
        assert fields is not None
        assert mutations.message_of(fields) == seed.read_bytes()
