"""System descriptions: what comes along is sound, what a user writes is checked entry by entry."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flint.cost import accelerators, systems
from flint.cost.accelerators import load_accelerator
from flint.cost.systems import load_system, system_names
from flint.cost.units import parse
from flint.errors import UsageError

_SYSTEM = (systems._FOLDER / "dgx-h100.toml").read_text()
_ACCELERATOR = (accelerators._FOLDER / "h100-sxm.toml").read_text()


@pytest.mark.parametrize("name", system_names())
def test_every_system_that_comes_along_is_sound_and_says_where_each_figure_is_from(name):
    system = load_system(name)
    assert system.name == name
    for stated in (*system.stated, *system.accelerator.stated):
        assert stated.source, stated.entry


@pytest.mark.parametrize("name", [n for n in system_names() if n.startswith("tpu")])
def test_matrix_units_give_the_peak(name):
    """A systolic array of side s does s x s multiply-adds per clock, those of v6e and v7x twice as
    many: Google's documentation and jax's ``tpu_info`` have two units per TensorCore.

    Clocks: 1.05 GHz (v4), 1.5 GHz (v5e), 1.75 GHz (v5p, v6e), 2.2 GHz (v7x).
    """
    clock = {"v4": 1.05e9, "v5e": 1.5e9, "v5p": 1.75e9, "v6e": 1.75e9, "v7x": 2.2e9}
    units = {"v4": 8, "v5e": 4, "v5p": 8, "v6e": 2, "v7x": 4}
    version = name.split("-")[1]
    accelerator = load_system(name).accelerator
    assert accelerator.kernel.units == units[version]
    adds = 4 if version in ("v6e", "v7x") else 2
    peak = units[version] * accelerator.kernel.k_step**2 * adds * clock[version]
    assert peak == pytest.approx(accelerator.matmul["bf16"], rel=0.002)


def described(tmp_path, change):
    """dgx-h100 in one file, its accelerator as a table, with one change."""
    head, _, network = _SYSTEM.partition('accelerator = "h100-sxm"')
    tables = _ACCELERATOR.replace("\n[", "\n[accelerator.")
    text = head + "[accelerator]\n" + tables + network
    assert text.count(change[0]) >= 1
    path = tmp_path / "mine.toml"
    path.write_text(text.replace(*change, 1))
    return path


def test_a_users_file_has_the_same_form(tmp_path):
    assert load_system(described(tmp_path, ("84.94 GB", "84.94 GB"))) == load_system("dgx-h100")
    without_source = (
        '["84.94 GB", "XLA\'s GPU target descriptions (device_memory_size): what CUDA reports"]',
        '"84.94 GB"',
    )
    assert load_system(described(tmp_path, without_source)) == load_system("dgx-h100")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("memory_bandwidth = ", "bandwidth = "), "accelerator.memory_bandwidth is missing"),
        (("3.35 TB/s", "-1 TB/s"), "accelerator.memory_bandwidth must be above 0"),
        (("3.35 TB/s", "3.35"), "'3.35' has no unit: expected a quantity in bytes/s"),
        (('["3.35 TB/s", "NVIDIA H100 datasheet"]', "3.35e12"), "has no unit"),
        (("3.35 TB/s", "3.35 TB"), "'3.35 TB': unknown unit here: expected a quantity in bytes/s"),
        (("450 GB/s", "-450 GB/s"), r"network\[0\].bandwidth must be above 0"),
        (('["0.6 us", 0.5]', '["0.6 us", 2]'), "protocols must be a list of"),
        (("3.4 us", "1e999 us"), r"network\[0\].latency is too large"),
        (('topology = "Switch"', 'topology = "Torus"'), "topology must be one of Ring"),
        (("size = [8,", "size = [0,"), "network sizes must increase"),
        (("launch_overhead", "launch_overheat"), "launch_overhead is missing"),
        (("\nf32 = ", "\ntf32 = "), "is not TOML: Cannot overwrite a value"),
        (("\nf32 = ", "\nf8 = "), "is not TOML: Cannot overwrite a value"),
        (("\nf32 = ", "\nf6 = "), "accelerator.matmul.f32 is missing"),
        (("\nf16 = ", "\nfp16 = "), "matmul.fp16 is not an element type; did you mean f16"),
        (("units = [132", "units = [1.5"), "kernel.units must be a whole number"),
        (("[128, 256, 1.0]", "[128, 256, 1.5]"), "tiles must be a list of"),
        (("[128, 256, 1.0]", "[inf, 256, 1.0]"), "tiles must be a list of"),
        (("[128, 256, 1.0]", "[1.5, 256, 1.0]"), "tiles must be a list of"),
        (('["0.6 us", 0.5]', '["0.6", 0.5]'), "protocols must be a list of"),
        (("450 GB/s", "1e999999999999 GB/s"), r"network\[0\].bandwidth: .* is out of range"),
        (("size = [8,", f"size = [{10**30},"), r"network\[0\].size must be at most 1000000000"),
        (('topology = "Switch"', 'topology = "Ring"'), "tree does not run on a Ring"),
        (('topology = "Switch"', 'topology = "Switch"\nports = "below"'), "no tier below"),
        (
            ('topology = "Switch"', 'topology = "Switch"\nrings = 3'),
            r"network\[0\].rings is for a Ring, but this is a Switch",
        ),
        (("matmul_efficiency = [0.", "matmul_efficiency = [8."), "at most 1"),
        (('["ring", "tree", "in-network"]', '["star"]'), "algorithms must be some of ring, tree"),
        (
            ('algorithms = ["ring", "tree", "in-network"]', "oversubscription = 0.5"),
            r"network\[0\].oversubscription must be a number of at least 1, not 0.5",
        ),
        (("[accelerator]", "[accelerator"), "is not TOML"),
        (("k_step", "colour = 3\nk_step"), "accelerator.kernel.colour is unknown"),
    ],
)
def test_a_faulty_description_names_the_entry(tmp_path, change, message):
    with pytest.raises(UsageError, match=message):
        load_system(described(tmp_path, change))


def test_an_unknown_accelerator_lists_those_there_are(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(_SYSTEM.replace("h100-sxm", "h1000"))
    with pytest.raises(UsageError, match=r"accelerator 'h1000' is unknown .* h100-sxm"):
        load_system(path)


def test_the_example_in_the_documentation_is_a_system(tmp_path):
    text = (Path(__file__).parents[2] / "docs/simulation.md").read_text()
    path = tmp_path / "mine.toml"
    path.write_text(text.split("```toml")[1].split("```")[0])
    system = load_system(path)
    assert system.accelerator == load_system("dgx-h100").accelerator
    assert system.network[1].bandwidth == 12.5e9


def test_an_unknown_system_is_answered_with_the_nearest():
    with pytest.raises(UsageError, match="did you mean dgx-h100"):
        load_system("DGX-H10")
    with pytest.raises(UsageError, match="no such file; choose from"):
        load_system("nothing like it")


def test_an_unknown_system_lists_those_there_are():
    with pytest.raises(UsageError, match="choose from: dgx-a100, dgx-b200, dgx-b300"):
        load_system("dgx-h1000")


@pytest.mark.parametrize(
    ("text", "measures", "value"),
    [
        ("80 GB", "bytes", 80e9),
        ("95 GiB", "bytes", 95 * 2**30),
        ("400 Gb/s", "bytes/s", 50e9),
        ("2.7us", "seconds", 2.7e-6),
        ("989.4 TFLOP/s", "operations/s", 989.4e12),
    ],
)
def test_quantities(text, measures, value):
    assert parse(text, measures) == value


@given(st.text(max_size=12))
def test_any_other_text_is_refused(text):
    with pytest.raises(ValueError, match="expected a quantity in bytes such as"):
        parse(text.replace("B", "").replace("b", ""), "bytes")


@pytest.mark.parametrize(
    ("content", "said"),
    [(b"name = \"\xff\"", r"x.toml: cannot be read: not UTF-8 text \(at byte 8\)$"),
     (None, "x.toml: cannot be read: Is a directory$")],
)  # fmt: skip
def test_a_file_that_cannot_be_read_is_named_once(tmp_path, content, said):
    path = tmp_path / "x.toml"
    path.mkdir() if content is None else path.write_bytes(content)
    with pytest.raises(UsageError, match=said):
        load_system(str(path))


def test_the_beginning_of_an_accelerators_name_is_enough_if_it_is_one():
    assert load_accelerator("h100") == load_accelerator("h100-sxm")
    assert load_accelerator("H200").name == "NVIDIA H200 SXM5 141GB"
    with pytest.raises(UsageError, match=r"'tpu' is unknown .*tpu-v4, tpu-v5e"):
        load_accelerator("tpu")
    with pytest.raises(UsageError, match=r"'none.toml': none.toml is not a file"):
        load_accelerator("none.toml")
