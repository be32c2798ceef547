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
from tests.support.shared import examples, quick

REGRESSIONS = sorted((Path(__file__).parent / "regressions").glob("*/*"))
IN_ONE_PROCESS = [name for name, reader in READERS.items() if not reader.starts_process]
#: The files of the others are damaged by their endings.
MUTATED = [name for name, reader in READERS.items() if reader.mutation is not None]


@pytest.mark.parametrize("name", quick(list(READERS), *IN_ONE_PROCESS))
def test_a_damaged_input_is_read_or_refused(name: str) -> None:
    counts = run(name, range(examples(60) if name in IN_ONE_PROCESS else 4))
    assert {outcome for outcome in counts if outcome.kind not in FINE} == set()


@pytest.mark.parametrize("name", IN_ONE_PROCESS)
def test_what_is_damaged_is_read_while_it_is_whole(name: str, tmp_path: Path) -> None:
    for seed in READERS[name].seeds[:4]:
        assert outcome_of(READERS[name], copied(seed, tmp_path)).kind == "read", seed


@pytest.mark.parametrize("path", REGRESSIONS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_an_input_that_was_a_defect_is_read_or_refused(path: Path, tmp_path: Path) -> None:
    """Its folder is READER, or READER@FILE for the damaged file of a folder."""
    name, _, file = path.parent.name.partition("@")
    seed = copied(READERS[name].seeds[0], tmp_path) if file else path
    if file:
        (seed / file.replace("+", "/")).write_bytes(path.read_bytes())
    assert outcome_of(READERS[name], seed).kind in FINE


@pytest.mark.parametrize("name", quick(MUTATED, "kineto", "chakra", "hlo-proto"))
def test_mutations_change_most_inputs_and_the_same_numbers_give_the_same(name: str) -> None:
    reader = READERS[name]
    assert reader.mutation is not None
    data = reader.seeds[0].read_bytes()
    made = [reader.mutation(data, Random(number)) for number in range(40)]
    assert made == [reader.mutation(data, Random(number)) for number in range(40)]
    assert len(set(made)) > 20


def test_a_protobuf_message_that_is_not_changed_is_written_as_it_was() -> None:
    for seed in READERS["hlo-proto"].seeds:
        fields = mutations.fields_of(seed.read_bytes())
        assert fields is not None
        again = [mutations.Field(field.number, field.wire, field.value) for field in fields]
        assert mutations.message_of(again) == seed.read_bytes()
