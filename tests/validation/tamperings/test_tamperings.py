"""No wrong capture agrees: it is caught, or the report names the missing facts."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from flint.errors import FlintError  # noqa: E402
from flint.validation.matching.unrecorded import GROUP, INFERRED  # noqa: E402
from flint.validation.validating import validate  # noqa: E402
from tests.support.children import run_script  # noqa: E402
from tests.support.shared import once, quick  # noqa: E402
from tests.validation.tamperings.kinds import CAUGHT, KINDS  # noqa: E402

pytestmark = pytest.mark.xdist_group("validation-tampered")

PLACE = "tests.validation.tamperings"
DOCUMENT = Path(__file__).parents[3] / "docs" / "tamperings.md"
NAMED = {f"{kind.base}: {kind.name}": kind for kind in KINDS}
#: What of each step has a name like its module.
MADE = {"trained": "trained", "sharded": "sharded", "exchanged": "exchanged",
        "jax_trained": "trained"}  # fmt: skip
#: The others are thorough.
CHEAP = ("jax_trained: no update", "jax_trained: weight decay")


@pytest.fixture(scope="module")
def files(tmp_path_factory, host_runs):
    """Traces of each step that ran, by form; each runs once."""

    def of(base):
        if base == "jax_trained":
            return {"xplane": [host_runs[f"{PLACE}.{base}:base"]]}

        def profile(folder):
            script = Path(__file__).parents[1] / "torch_profiling.py"
            run_script(script, folder, f"{PLACE}.{base}:base", imported="torch")

        folder = once(tmp_path_factory, f"tampered-{base}", profile)
        return {form: sorted(folder.glob(f"{form}_rank*.json")) for form in ("kineto", "et")}

    return of


def captured(base, changes=""):
    module = importlib.import_module(f"{PLACE}.{base}")
    options = eval(f"dict({changes})", vars(module))  # the table's own text
    return getattr(module, MADE[base])(**options).capture()


def outcomes(workload, traces):
    """What happens, by the form of the traces: CAUGHT, or all that the report was not told."""
    found = {}
    for form, some in traces.items():
        try:
            report = validate(workload, some)
        except FlintError:  # nothing can be concluded
            found[form] = {CAUGHT}
            continue
        said = {*report.unrecorded, *report.not_compared}
        found[form] = said if report.ok else {CAUGHT}
    return found


def told(said):
    """What a report says; a group that it infers, by times that differ from run to run, is one."""
    return said | {GROUP} if INFERRED in said else said


@pytest.mark.parametrize("base", quick(MADE, "jax_trained"))
def test_the_step_that_ran_agrees(base, files):
    for form, said in outcomes(captured(base), files(base)).items():
        assert CAUGHT not in said, form


@pytest.mark.parametrize("name", quick(NAMED, *CHEAP))
def test_a_wrong_capture_is_caught_or_the_missing_fact_is_reported(name, files):
    kind = NAMED[name]
    for form, said in outcomes(captured(kind.base, kind.changes), files(kind.base)).items():
        assert kind.told in told(said) or said == {CAUGHT}, (form, said)
    # What one form of traces does not tell, another may: not all of them do.
    assert (kind.told == CAUGHT) == (said == {CAUGHT}) or "exchanged" in kind.base


def test_there_are_many_kinds_and_the_document_lists_each():
    text = DOCUMENT.read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if line.startswith("| ") and "---" not in line]
    assert rows[1:] == [kind.row for kind in KINDS]
    assert len(set(rows)) == len(rows) > 100
    assert f"{len(KINDS)} kinds" in text
