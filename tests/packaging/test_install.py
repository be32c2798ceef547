"""install.py: uv is given what pip is told, and what uv cannot be told is left to pip."""

import subprocess
import sys

import pytest

from install import main, settings, uv_arguments

# As pip prints it, here with a file for all users, one's own section for `install`, and `PIP_...`.
LISTING = """\
:env:.find-links='/wheels'
:env:.no-compile='1'
download.find-links='/elsewhere'
global.extra-index-url='https://a/simple\\nhttps://b/simple'
global.index-url='https://of-all/simple'
install.find-links='/of-install'
install.index-url='https://of-install/simple'
"""


def test_the_environment_counts_before_install_and_that_before_all_commands():
    assert settings(LISTING) == {
        "extra-index-url": "https://a/simple\nhttps://b/simple",
        "index-url": "https://of-install/simple",
        "find-links": "/wheels",
        "no-compile": "1",
    }


def test_settings_of_pip_are_read_as_pip_prints_them(tmp_path):
    config = tmp_path / "pip.conf"
    config.write_text("[global]\nextra-index-url =\n    https://a/simple\n    https://b/simple\n")
    environment = {"PIP_CONFIG_FILE": str(config), "PIP_FIND_LINKS": "/wheels /more"}
    listing = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"],
        env=environment, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    found = settings(listing)
    assert found["extra-index-url"].split() == ["https://a/simple", "https://b/simple"]
    assert found["find-links"] == "/wheels /more"


def test_each_place_is_an_option_of_uv():
    assert uv_arguments(settings(LISTING)) == [
        "--index-strategy", "unsafe-best-match",
        "--extra-index-url", "https://a/simple", "--extra-index-url", "https://b/simple",
        "--index-url", "https://of-install/simple", "--find-links", "/wheels",
    ]  # fmt: skip


def test_a_setting_that_uv_may_not_have_is_left_to_pip():
    assert uv_arguments({"index-url": "https://a/simple", "client-cert": "mine.pem"}) is None


@pytest.mark.parametrize("fails", [("uv>=0.5,<1",), ("uv", "pip")], ids=["no uv", "uv fails"])
def test_pip_installs_where_uv_does_not(monkeypatch, capfd, fails):
    commands = []

    def run(command, **_options):
        commands.append(command)
        failed = " ".join(fails) in " ".join(command)
        return subprocess.CompletedProcess(command, int(failed), stdout="")

    monkeypatch.setattr(subprocess, "run", run)
    assert main(".[dev]") == 0
    assert commands[-1][1:3] == ["-m", "pip"] and commands[-1][-2:] == ["--editable", ".[dev]"]
    assert ("uv did not install it" in capfd.readouterr().err) == (fails[0] == "uv")


def test_what_uv_installed_is_not_installed_again(monkeypatch):
    commands = []

    def run(command, **_options):
        commands.append(command)
        return subprocess.CompletedProcess(
            command, 0, stdout="global.index-url='https://a/simple'\n"
        )

    monkeypatch.setattr(subprocess, "run", run)
    assert main(".") == 0
    assert commands[-1][1:5] == ["-m", "uv", "pip", "install"]
    assert commands[-1][-4:-2] == ["--index-url", "https://a/simple"]
