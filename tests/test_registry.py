"""The registry: ours from the table, others' through entry points, nothing guessed."""

from importlib import metadata
from pathlib import Path

import pytest

from flint import registry
from flint.errors import FlintError, UsageError


def offer(
    folder: Path, distribution: str, name: str, target: str, group: str = "flint.converters"
) -> None:
    """Lay down what an installed distribution with one entry point looks like."""
    info = folder / f"{distribution}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{group}]\n{name} = {target}\n")


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def test_one_of_ours_is_imported_from_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "CONVERTERS", {"ours": "flint.errors:UsageError"})
    assert registry.converter("ours") is UsageError


def test_the_environment_is_not_read_for_one_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**_: object) -> None:
        raise AssertionError("entry points were read")

    monkeypatch.setattr(registry, "CONVERTERS", {"ours": "flint.errors:UsageError"})
    monkeypatch.setattr(metadata, "entry_points", refuse)
    registry.converter("ours")


@pytest.mark.parametrize("table", [registry.FRONTENDS, registry.CONVERTERS])
def test_every_name_in_the_tables_resolves(table: dict[str, str]) -> None:
    find = registry.frontend if table is registry.FRONTENDS else registry.converter
    assert all(callable(find(name)) for name in table)


def test_another_distribution_can_add_a_converter(site: Path) -> None:
    (site / "acme_format.py").write_text("def write(): return 'written'\n")
    offer(site, "acme", "acme-format", "acme_format:write")
    assert registry.converter("acme-format")() == "written"


def test_another_distribution_can_add_a_frontend(site: Path) -> None:
    (site / "acme_reader.py").write_text("def read(): return 'read'\n")
    offer(site, "acme", "acme-reader", "acme_reader:read", group="flint.frontends")
    assert registry.frontend("acme-reader")() == "read"


def test_an_unknown_name_is_answered_with_the_known_ones(site: Path) -> None:
    offer(site, "acme", "acme-format", "acme_format:write")
    with pytest.raises(UsageError, match=r"unknown converter 'chakar'.*acme-format.*chakra"):
        registry.converter("chakar")


def test_another_distribution_cannot_replace_one_of_ours(site: Path) -> None:
    offer(site, "acme", "saved", "acme_reader:read", group="flint.frontends")
    assert registry.frontend("saved").__module__.startswith("flint.")


def test_a_converter_that_does_not_load_names_its_distribution(site: Path) -> None:
    offer(site, "acme", "acme-format", "acme_is_not_there:write")
    with pytest.raises(FlintError, match=r"'acme-format' of acme cannot be loaded"):
        registry.converter("acme-format")


def test_a_name_offered_twice_is_not_guessed(site: Path) -> None:
    offer(site, "acme", "acme-format", "acme_format:write")
    offer(site, "bolt", "acme-format", "bolt_format:write")
    with pytest.raises(FlintError, match="registered more than once"):
        registry.converter("acme-format")
