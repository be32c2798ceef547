"""The table of targets: what there is, what is missing for it, which slices TPUs have."""

from __future__ import annotations

import pytest

from flint import registry
from flint.capturing.targets import target as target_called
from flint.capturing.targets import targets
from flint.cost.systems import load_system, system_with
from flint.errors import UsageError
from flint.frontends.jax.targets import table as target_table
from flint.frontends.jax.targets.table import table, tpu_topology

NAMES = (
    "h100", "h200", "b200", "gb200", "a100-80", "a100-40",
    "tpu-v4", "tpu-v5e", "tpu-v5p", "tpu-v6e", "tpu7x",
)  # fmt: skip


def installed(monkeypatch, **versions):
    """Let these distributions be installed, and no others."""
    found = {name.replace("_", "-"): version for name, version in versions.items()}
    monkeypatch.setattr(target_table, "installed_version", found.get)
    monkeypatch.setattr(target_table, "plugin", lambda platform: "plugin.so")


def test_the_targets_are_those_of_the_documentation():
    assert tuple(target.name for target in targets()) == NAMES


def test_memory_comes_from_the_description_that_the_compiler_reads():
    """80 GB of HBM as the driver reports it: a little less than 80 GiB."""
    assert 79 * 2**30 < table()["h100"].memory < 80 * 2**30
    assert 38 * 2**30 < table()["a100-40"].memory < 40 * 2**30


@pytest.mark.parametrize("target", targets(), ids=lambda target: target.name)
def test_every_target_has_a_system_of_such_chips(target):
    """Memory of a chip as its maker states it, in GB or GiB, and as the compiler knows it."""
    accelerator = load_system(target.system).accelerator
    model = target.name.removeprefix("tpu-").partition("-")[0]
    assert model.lower() in accelerator.name.lower()
    chip = target.memory * table()[target.name].row.get("devices_per_chip", 1)
    other = 2 if target.name == "a100-40" else 1  # no system has the 40 GB ones
    assert accelerator.memory_bytes == pytest.approx(chip * other, rel=0.1)


#: Chips -> slice, from Cloud TPU's documentation of v5p and v5e.
V5P = {
    4: "2x2x1", 8: "2x2x2", 16: "2x2x4", 32: "2x4x4", 64: "4x4x4", 128: "4x4x8", 256: "4x8x8",
    512: "8x8x8", 1024: "8x8x16", 2048: "8x16x16", 4096: "16x16x16", 6144: "16x16x24",
    8960: "16x20x28",
}  # fmt: skip
V5E = {1: "1x1", 4: "2x2", 8: "2x4", 16: "4x4", 32: "4x8", 64: "8x8", 128: "8x16", 256: "16x16"}


@pytest.mark.parametrize(("chips", "shape"), V5P.items())
def test_v5p_slices_are_those_of_the_documentation(chips, shape):
    assert tpu_topology(table()["tpu-v5p"], chips) == (f"v5p:{shape}", (2, 2, 1))


@pytest.mark.parametrize(("chips", "shape"), V5E.items())
def test_v5e_slices_are_those_of_the_documentation(chips, shape):
    host = (1, 1, 1) if chips == 1 else (2, 2, 1)
    assert tpu_topology(table()["tpu-v5e"], chips) == (f"v5e:{shape}", host)


def test_a_chip_of_two_devices_takes_half_as_many_chips():
    assert tpu_topology(table()["tpu7x"], 256)[0] == "tpu7x:4x4x8"


@pytest.mark.parametrize(
    ("name", "devices", "near"),
    [("tpu-v5p", 6, "4 and 8"), ("tpu-v5e", 512, "256"), ("tpu7x", 9, "8 and 16")],
)
def test_a_mesh_that_is_not_a_slice_is_refused_with_the_nearest(name, devices, near):
    with pytest.raises(UsageError, match=rf"no slice has {devices} devices; .* {near}$"):
        tpu_topology(table()[name], devices)


def test_an_unknown_target_is_refused_with_the_names():
    with pytest.raises(UsageError, match=r"unknown target 'h1000'; choose from: h100, .*, tpu7x$"):
        target_called("h1000")


def test_a_tpu_may_be_named_without_its_prefix(monkeypatch):
    installed(monkeypatch, jaxlib="0.10.2", libtpu="0.0.42.1")
    assert target_called("v5p").name == "tpu-v5p"


@pytest.mark.parametrize(("name", "extra"), [("h100", "gpu"), ("tpu-v5p", "tpu")])
def test_a_missing_extra_is_named(name, extra, monkeypatch):
    installed(monkeypatch, jaxlib="0.10.2")
    with pytest.raises(UsageError, match=rf"pip install 'flint-workload\[{extra}\]'"):
        target_called(name)


def test_a_plugin_that_does_not_match_jaxlib_is_refused_with_both_versions(monkeypatch):
    installed(
        monkeypatch, jaxlib="0.10.2", jax_cuda12_pjrt="0.10.1", jax_cuda12_plugin="0.10.2",
        nvidia_cuda_nvcc_cu12="12.9",
    )  # fmt: skip
    with pytest.raises(UsageError, match=r"jax-cuda12-pjrt 0\.10\.1 and jaxlib 0\.10\.2 do not"):
        target_called("h100")


def test_an_untried_libtpu_is_refused_with_both_versions(monkeypatch):
    installed(monkeypatch, jaxlib="0.10.2", libtpu="0.0.51")
    with pytest.raises(UsageError, match=r"libtpu 0\.0\.51 and jaxlib 0\.10\.2 .*0\.0\.42"):
        target_called("tpu-v5p")


def test_everything_installed_is_nothing_missing(monkeypatch):
    installed(
        monkeypatch, jaxlib="0.10.2", jax_cuda12_pjrt="0.10.2", jax_cuda12_plugin="0.10.2",
        nvidia_cuda_nvcc_cu12="12.9", libtpu="0.0.42.1",
    )  # fmt: skip
    assert not any(target.missing for listed in registry.targets() for target in listed)


def test_the_system_of_a_target_is_made_of_its_accelerator():
    for item in table().values():
        assert system_with(item.row["accelerator"]) == item.row["system"]
