"""One clear line for each thing that the environment lacks or should not have."""

import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from flint.errors import FlintError, UsageError
from flint.host import environment


def install(folder: Path, distribution: str, version: str) -> None:
    info = folder / f"{distribution.replace('-', '_')}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n"
    )


def test_an_installed_python_flint_is_refused_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, "python-flint", "0.8.0")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(UsageError, match=r"^python-flint 0\.8\.0 is installed.*$"):
        environment.refuse_namesake()


def test_an_environment_without_python_flint_is_fine() -> None:
    environment.refuse_namesake()


def test_versions_are_those_that_the_standard_library_finds() -> None:
    installed = {item.name: item.version for item in reversed(list(metadata.distributions()))}
    assert {name: environment.installed_version(name) for name in installed} == installed
    assert environment.installed_version("no-such-distribution") is None


def test_a_distribution_in_an_archive_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with zipfile.ZipFile(tmp_path / "more.zip", "w") as archive:
        archive.writestr("zipped-3.1.dist-info/METADATA", "Name: zipped\nVersion: 3.1\n")
    monkeypatch.syspath_prepend(str(tmp_path / "more.zip"))
    assert environment.installed_version("zipped") == "3.1"


def test_a_missing_extra_is_named_with_the_command_that_installs_it() -> None:
    with pytest.raises(UsageError) as caught:
        environment.require("cluster", "no_such_module_of_an_extra", "a sweep on a cluster")
    assert str(caught.value) == (
        "a sweep on a cluster needs the extra `flint-workload[cluster]`: "
        "pip install 'flint-workload[cluster]' (in a checkout: '.[cluster]')"
    )


def test_a_missing_parent_package_counts_as_a_missing_extra() -> None:
    with pytest.raises(UsageError, match=r"flint-workload\[cluster\]"):
        environment.require("cluster", "no_such_package.part", "a sweep")


def test_an_extra_that_is_there_is_returned() -> None:
    assert environment.require("pandas", "json.decoder", "a table").__name__ == "json.decoder"


def test_a_module_that_is_there_but_lacks_its_own_needs_is_not_called_a_missing_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_extra.py").write_text("import a_module_that_it_needs\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(FlintError, match="a_module_that_it_needs") as caught:
        environment.require("cluster", "broken_extra", "a sweep")
    assert not isinstance(caught.value, UsageError)


@pytest.mark.parametrize(
    ("version", "works"), [("1.4", False), ("1.5", True), ("1.5.9", True), ("1.6.0rc1", False)]
)
def test_an_untried_version_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, works: bool
) -> None:
    install(tmp_path, "acme-private", version)
    monkeypatch.syspath_prepend(str(tmp_path))
    if works:
        environment.check_version("acme-private", ">=1.5,<1.6")
        return
    with pytest.raises(FlintError, match=r">=1\.5,<1\.6") as caught:
        environment.check_version("acme-private", ">=1.5,<1.6")
    assert version in str(caught.value)


def test_a_version_check_of_something_not_installed_reports_it() -> None:
    with pytest.raises(FlintError, match="is not installed"):
        environment.check_version("no-such-distribution", ">=1")


def test_a_malformed_clause_is_a_bug_and_not_a_pass() -> None:
    with pytest.raises(ValueError, match="not a version clause"):
        environment.satisfies("1.0", "~=1.0")


releases = st.lists(st.integers(0, 12), min_size=1, max_size=4).map(
    lambda numbers: ".".join(map(str, numbers))
)
clauses = st.lists(
    st.tuples(st.sampled_from([">=", "<=", "==", ">", "<"]), releases).map("".join),
    min_size=1,
    max_size=3,
).map(",".join)


@given(releases, clauses)
def test_releases_compare_as_pip_compares_them(version: str, clause: str) -> None:
    expected = SpecifierSet(clause).contains(Version(version))
    assert environment.satisfies(version, clause) == expected
    assert environment.satisfies(f"{version}+cpu", clause) == expected
