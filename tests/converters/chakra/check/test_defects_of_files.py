"""Files that are missing, cut, damaged, too few or too many; what is checked of a part of them."""

from __future__ import annotations

import gzip
import json

import pytest

from flint.converters.chakra.check.checker import RULES, check, check_traces
from flint.errors import UsageError
from tests.converters.chakra.check.defects import GOOD, errors, run
from tests.converters.chakra.check.traces import (
    METADATA,
    coll,
    comp,
    encode,
    frame,
    in_memory,
    send,
    write,
)


def test_sound_traces_pass_without_a_word(tmp_path):
    report = run(tmp_path / "w", [GOOD, GOOD], npus=[2])
    assert report.findings == () and report.ok
    assert (report.ranks, report.size, report.nodes, report.distinct_files) == (2, 2, 6, 1)
    of_flints_own_folders = {"changed-file", "changed-setting", "refused-setting"}
    assert set(report.checked) == set(RULES) - of_flints_own_folders and not report.not_checked


def test_every_rule_says_what_it_demands():
    assert all(rule.hits.__doc__ for rule in RULES.values())


def test_truncated_file(tmp_path):
    report = run(tmp_path / "w", [GOOD, encode(GOOD)[:-1]])
    (finding,) = report.findings
    assert (finding.rule, finding.rank) == ("framing", 1)
    assert finding.file.endswith("trace.1.et") and "byte" in finding.message


def test_garbage_in_a_node(tmp_path):
    assert errors(run(tmp_path / "w", [GOOD, METADATA + b"\x02\x08\xff"])) == {"framing"}


def test_missing_metadata(tmp_path):
    body = b"".join(frame(item) for item in GOOD)
    assert errors(run(tmp_path / "w", [GOOD, body])) == {"missing-metadata"}


def test_empty_file_has_no_metadata(tmp_path):
    assert errors(run(tmp_path / "w", [GOOD, b""])) == {"missing-metadata"}


def test_gzip_is_read(tmp_path):
    packed = gzip.compress(encode(GOOD))
    assert run(tmp_path / "w", [packed, GOOD]).ok


def test_empty_graph():
    assert errors(check_traces(in_memory([[], [comp(0)]]))) == {"empty-graph"}


def test_missing_file(tmp_path):
    folder = write(tmp_path / "w", [GOOD, GOOD, GOOD])
    (folder / "et" / "trace.1.et").unlink()
    report = check(folder)
    assert errors(report) == {"missing-file"}
    assert report.findings[0].rank == 1
    assert report.not_checked["group-sequence"] == "fix first: missing-file"


def test_fewer_files_than_the_network_has_ranks(tmp_path):
    report = run(tmp_path / "w", [GOOD, GOOD], npus=[2, 2])
    assert errors(report) == {"missing-file"} and report.counts["missing-file"] == 2


def test_more_files_than_the_network_has_ranks(tmp_path):
    with pytest.raises(UsageError, match="npus_count"):
        run(tmp_path / "w", [GOOD, GOOD, GOOD], npus=[2])


def test_one_rank_is_not_an_error(tmp_path):
    report = run(tmp_path / "w", [[comp(0)]])
    assert report.ok and report.counts == {"world-size": 1}


def test_no_traces_at_all(tmp_path):
    with pytest.raises(UsageError, match="no execution traces"):
        check(tmp_path)


def test_partial_set_says_what_was_not_checked(tmp_path):
    folder = write(tmp_path / "w", [GOOD, GOOD], npus=[4])
    (folder / "workload.json").write_text(json.dumps({"partial": True}))
    report = check(folder)
    assert report.ok and report.findings == ()
    assert {"missing-file", "group-sequence", "p2p-match", "slot-order"} <= set(report.not_checked)


def test_partial_set_without_a_network_accepts_peers_that_are_not_there(tmp_path):
    nodes = [send(0, 700), coll(1, [0], pg_name="1")]
    folder = write(tmp_path / "w", [nodes, [comp(0)]], groups={"1": [0, 700]})
    (folder / "workload.json").write_text(json.dumps({"partial": True}))
    report = check(folder)
    assert report.findings == () and "p2p-peer" in report.not_checked


def test_prefix_names_one_of_several_sets(tmp_path):
    for name in ("a", "b"):
        for rank in range(2):
            nodes = GOOD if name == "a" else [comp(0, [0])]
            (tmp_path / f"{name}.{rank}.et").write_bytes(encode(nodes))
    with pytest.raises(UsageError, match=r"several prefixes \(a, b\)"):
        check(tmp_path)
    assert check(tmp_path / "a").ok and not check(tmp_path / "b").ok


def test_group_table_and_extents_can_be_given(tmp_path):
    nodes = [coll(0, pg_name="1"), coll(1, [0], involved_dim=[True, False])]
    folder = write(tmp_path / "w", [nodes] * 4)
    table = tmp_path / "groups.json"
    table.write_text(json.dumps({"1": [0, 1, 2, 3]}))
    assert check(folder, comm_groups=table, npus_count=(2, 2)).ok
    assert errors(check(folder, npus_count=(2, 2))) == {"group-unknown"}


def test_too_few_implementations_are_warned_about():
    system = {"all-reduce-implementation": ["ring"], "all-gather-implementation": ["ring", "ring"]}
    report = check_traces(in_memory([GOOD] * 4, npus=[2, 2], system=system))
    assert report.ok and report.counts == {"implementations": 1}
