"""Diagrams of groups: who is in colour, what is left out, that their texts can be read."""

from __future__ import annotations

import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from flint.cli import main
from flint.converters.pictures.network_svg import network, write_network
from flint.cost.hardware import Tier
from flint.cost.systems import load_system
from flint.mesh.mesh import Mesh
from flint.simulation.recording import record
from tests.converters.pictures.browser import misplaced, needs_browser
from tests.simulation.test_simulate import overlapped, pipeline

MESH = Mesh((8, 8), ("data", "model"))


def drawn(workload, system="dgx-h100"):
    """Text of the drawing and its elements."""
    text = network(record(workload, system))
    return text, list(ElementTree.fromstring(text).iter())


def ranks(elements):
    """Rank -> whether it is in colour, of a drawing with one strip."""
    found, fill = {}, ""
    for element in elements:
        if element.tag == "rect":
            fill = element.get("fill")
        if element.tag == "text" and (element.text or "").isdigit():
            found[int(element.text)] = fill not in ("#ededed", "none")
    return found


def words(elements):
    return [element.text for element in elements if element.tag == "text"]


def test_a_group_along_the_last_axis_is_a_node():
    _, elements = drawn(overlapped(MESH, "model"))
    assert {rank for rank, member in ranks(elements).items() if member} == set(range(8))
    assert "8 groups of 8 ranks" in words(elements)
    assert "8 over NVLink 4 and NVSwitch" in words(elements)


def test_a_group_along_the_first_axis_has_one_rank_per_node():
    _, elements = drawn(overlapped(MESH, "data"))
    # Three of the eight nodes are drawn, the last one too, each with all its ranks.
    assert {rank for rank, member in ranks(elements).items() if member} == {0, 8, 56}
    assert len(ranks(elements)) == 24
    assert "8 over InfiniBand NDR" in words(elements)
    assert "\u2026 5" in words(elements)


def test_nodes_on_a_ring_are_drawn_as_nodes():
    tiers = (
        Tier("node", 8, "Switch", 450e9, 1e-6),
        Tier("ring of nodes", 0, "Ring", 50e9, 1e-6),
    )
    _, elements = drawn(overlapped(MESH, "data"), replace(load_system("dgx-h100"), network=tiers))
    assert {rank for rank, member in ranks(elements).items() if member} == {0, 8, 56}
    assert {"node", "ring of nodes"} <= set(words(elements))


def test_what_is_drawn_and_what_is_left_out_are_all_ranks():
    """16,384 ranks in nodes of 8: of each drawn node's ranks, and of the nodes, none is lost."""
    _, elements = drawn(overlapped(Mesh((8, 16, 16, 8), ("a", "b", "c", "d")), "b"))
    gaps = [
        int(text[2:].replace(",", "")) for text in words(elements) if text.startswith("\u2026 ")
    ]
    nodes = sum("NVLink" in text for text in words(elements))
    cells = len(ranks(elements))
    inside = [gap for gap in gaps if gap == 8 - cells // nodes]
    assert cells + sum(inside) == nodes * 8
    assert nodes + sum(gaps) - sum(inside) == 16384 // 8


def test_a_drawing_does_not_grow_with_ranks():
    small, _ = drawn(overlapped(Mesh((64, 8), ("data", "model")), "data"))
    large, _ = drawn(overlapped(Mesh((8192, 8), ("data", "model")), "data"))
    assert len(large) < 1.2 * len(small)


def test_a_torus_shows_planes():
    """64 ranks are a torus of 4 x 4 x 4: 8 along "model" are two of its rows of 4."""
    text, elements = drawn(overlapped(MESH, "model"), "tpu-v5p-pod")
    assert "plane 0: 4 x 4" in words(elements)
    dots = [e.get("fill") for e in elements if e.tag == "rect" and e.get("fill") != "none"]
    assert len(dots) == 64 and sum(fill != "#e4e4e4" for fill in dots) == 8
    assert "ICI torus" in text


def test_messages_of_a_pipeline_are_a_chain():
    _, elements = drawn(pipeline(3))
    assert any("collective-permute" in text or "send" in text for text in words(elements))
    assert any("messages" in text for text in words(elements))


def test_a_file_stands_alone(tmp_path):
    write_network(record(overlapped(MESH, "data"), "dgx-h100"), tmp_path / "groups.svg")
    text = (tmp_path / "groups.svg").read_text()
    root = ElementTree.fromstring(text)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert "Groups of data=8 x model=8 on dgx-h100" in text
    assert not re.search(r"href|url\(|<script|@import", text)


def test_the_command_writes_it(tmp_path, capsys):
    overlapped(MESH, "data").save_programs(tmp_path / "out")
    path = tmp_path / "groups.svg"
    with pytest.raises(SystemExit) as stopped:
        main(["simulate", str(tmp_path / "out"), "--network", str(path)])
    assert stopped.value.code == 0
    assert f"wrote {path}" in capsys.readouterr().err
    ElementTree.parse(path)


@needs_browser
@pytest.mark.parametrize("system", ["dgx-h100", "dgx-h100-superpod", "gb200-nvl72", "tpu-v5e-pod"])
def test_its_texts_are_readable(tmp_path, system):
    workload = overlapped(Mesh((8, 16, 16, 8), ("a", "b", "c", "d")), "c")
    page = f"<!DOCTYPE html><body>{network(record(workload, system), alone=True)}</body>"
    count, found = misplaced(page, tmp_path)
    assert count > 8
    assert [item for item in found if "wider than the window" not in item] == []
