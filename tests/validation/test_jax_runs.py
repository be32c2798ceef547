"""Steps run for real on host devices: every collective and every dot of them was captured."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flint.errors import FlintError, UsageError
from flint.graph.graph import with_tables
from flint.observed.classes import OpClass
from flint.validation.matching.form_reasons import BUFFERS, PROMOTED, SCATTERED, SWAPPED
from flint.validation.rewrites.combined_collectives import COMBINED
from flint.validation.rewrites.removed_ops import DUPLICATE
from flint.validation.validating import validate
from tests.support.shared import quick
from tests.validation.conftest import STEPS, step_of
from tests.validation.totals import totals

pytestmark = pytest.mark.xdist_group("validation")

#: What XLA's CPU backend does to each step, and nothing else may be explained away.
EXPLAINED = {
    "mlp": {SWAPPED, SCATTERED},
    "scan": {COMBINED[OpClass.ALL_REDUCE], SCATTERED},
    "ring": {BUFFERS},
    "bf16": {PROMOTED},
    "explicit": set(),
}


@pytest.mark.parametrize("name", quick(STEPS, "mlp", "scan", "llama3"))
def test_every_collective_and_every_dot_of_a_real_run_was_captured(name, captures, profiles):
    report = validate(captures(name), [profiles[name]])
    assert report.ok, (report.verdict, report.differences[:4])
    found = totals(report)
    repeated = report.explained.get(DUPLICATE, 0)
    assert found["matched"] + repeated == found["captured"] > 0
    assert not repeated or name == "ring_attention"
    assert found["by_name"] == 0
    assert report.ranks == list(range(captures(name).mesh.size))


@pytest.mark.parametrize("name", quick(EXPLAINED, "mlp", "scan"))
def test_differences_in_form_are_identified_by_name(name, captures, profiles):
    assert set(validate(captures(name), [profiles[name]]).explained) <= EXPLAINED[name]


@pytest.mark.thorough
def test_a_product_that_the_backward_pass_repeats_ran_once(captures, profiles):
    report = validate(captures("ring_attention"), [profiles["ring_attention"]])
    gemms = report.classes[OpClass.GEMM]
    # Queries times keys of a rank's own block: recomputed, and computed again for its gradient.
    assert report.explained[DUPLICATE] == gemms.captured - gemms.executed > 0


def test_dependencies_are_checked_and_hold(captures, profiles):
    report = validate(captures("mlp"), [profiles["mlp"]])
    # On each of 8 devices, with w1 and w2 gathered (G), dots (D), reductions (R) in the order of
    # the step: G1-D1, D1-G2, G2-D2, D2-R1; backward D1-G3, R1-D3, R1-D4, G3-D4, D3-R2, R2-D5,
    # D5-R3, and by relu's mask D1-D5.
    assert report.edges == 12 * 8
    assert report.contradicted == 0


def changed(workload, change):
    """The workload with one of its communications changed."""
    [program] = workload.programs
    tables = program.graph.tables
    number, item = next(
        (n, item) for n, item in enumerate(tables.communications) if item.kind == "all_gather"
    )
    items = list(tables.communications)
    items[number] = replace(item, **change(item))
    graph = with_tables(program.graph, replace(tables, communications=tuple(items)))
    return replace(workload, programs=(replace(program, graph=graph),))


@pytest.mark.parametrize(
    "change",
    [
        lambda item: {"operand_bytes": tuple(size * 2 for size in item.operand_bytes)},
        lambda item: {"kind": "all_reduce", "reduction": "add"},
        lambda item: {"groups": item.groups.complement()},
    ],
    ids=["bytes", "kind", "group"],
)
def test_a_changed_collective_is_found(change, captures, profiles):
    report = validate(changed(captures("mlp"), change), [profiles["mlp"]])
    assert not report.ok
    counted = [item for item in report.differences if item.counts]
    assert {item.what for item in counted} == {"not executed", "not captured"}
    assert {item.kind for item in counted} <= {OpClass.ALL_GATHER, OpClass.ALL_REDUCE}
    assert report.failures == 2 * 8  # one each way, on every device
    assert all("steps.py:" in item.where for item in counted)


def test_another_models_trace_is_refused(captures, profiles):
    with pytest.raises(FlintError, match=r"another model.*nothing can be concluded"):
        validate(captures("mlp"), [profiles["scan"]])


def test_another_mesh_is_refused(captures, profiles):
    small = step_of("mlp").at(mesh=(2, 2)).capture()
    with pytest.raises(FlintError, match="a run on 8 ranks; the capture is for 4"):
        validate(small, [profiles["mlp"]])


def test_the_step_can_be_chosen_and_must_be_there(captures, profiles):
    assert set(validate(captures("mlp"), [profiles["mlp"]]).step) == {"run 1"}
    assert set(validate(captures("mlp"), [profiles["mlp"]], step="0").step) == {"run 0"}
    with pytest.raises(UsageError, match="no step 'run 7'; choose from: run 0, run 1"):
        validate(captures("mlp"), [profiles["mlp"]], step="run 7")


def test_a_rank_twice_is_refused(captures, profiles):
    with pytest.raises(UsageError, match="rank 0 is also in another trace"):
        validate(captures("mlp"), [profiles["mlp"], profiles["mlp"]])


def test_a_cut_off_file_is_one_clear_line(captures, profiles, tmp_path):
    [file] = profiles["mlp"].glob("**/*.xplane.pb")
    cut = tmp_path / "cut.xplane.pb"
    cut.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    with pytest.raises(FlintError, match=r"cut\.xplane\.pb"):
        validate(captures("mlp"), [cut])


def test_an_empty_folder_is_one_clear_line(captures, tmp_path):
    with pytest.raises(FlintError, match=r"neither \.xplane\.pb files"):
        validate(captures("mlp"), [tmp_path])
