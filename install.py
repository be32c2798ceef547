"""Installs a project into the environment whose Python runs this file: with uv, else with pip.

    .venv/bin/python install.py '.[dev,torch]'

pip unpacks two gigabytes of PyTorch and JAX in a minute and more; uv takes a fifth of that. But uv
does not read pip's settings (its files and `PIP_...`), which say on many machines where packages
come from. So they are translated, by the table below. A setting that is not in it, a machine that
has no uv, an installation that fails: pip does it, as if this file were not there.
"""

import ast
import os
import subprocess
import sys

UV = "uv>=0.5,<1"

# pip's settings that say where packages come from, with uv's option; each may have several values.
_OPTIONS = {
    "index-url": "--index-url",
    "extra-index-url": "--extra-index-url",
    "find-links": "--find-links",
    "constraint": "--constraint",
    "trusted-host": "--allow-insecure-host",
}

# pip's settings that change nothing of what is installed.
_OF_PIP_ALONE = {
    "cache-dir",
    "cert",  # uv takes it from its environment
    "default-timeout",
    "disable-pip-version-check",
    "no-cache-dir",
    "no-color",
    "no-compile",
    "no-input",
    "progress-bar",
    "quiet",
    "require-virtualenv",
    "retries",
    "root-user-action",
    "timeout",
    "verbose",
}


def settings(listing: str) -> dict[str, str]:
    """pip's settings by name, of what `pip config list` prints.

    As for pip, the environment counts before the section of its `install`, and that before the
    global one. Sections of other commands are not for us.
    """
    sections: dict[str, dict[str, str]] = {"global": {}, "install": {}, ":env:": {}}
    for line in listing.splitlines():
        key, separator, value = line.partition("=")
        section, _, name = key.rpartition(".")
        if separator and section in sections:
            sections[section][name] = str(ast.literal_eval(value))
    return sections["global"] | sections["install"] | sections[":env:"]


def uv_arguments(pip: dict[str, str]) -> list[str] | None:
    """uv's options that mean what these settings of pip do; None where one of them has none."""
    # pip takes the best version of all indexes, uv of the first one that has the package.
    arguments = ["--index-strategy", "unsafe-best-match"]
    for name, value in pip.items():
        if name in _OPTIONS:
            arguments += [word for each in value.split() for word in (_OPTIONS[name], each)]
        elif name not in _OF_PIP_ALONE:
            return None
    return arguments


def _pip(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments]


def _installs_with_uv(project: str) -> bool:
    listing = subprocess.run(_pip("config", "list"), capture_output=True, text=True, check=False)
    pip = settings(listing.stdout)
    arguments = uv_arguments(pip)
    if listing.returncode or arguments is None:
        return False
    install_uv = _pip("install", "--quiet", "--no-compile", UV)
    if subprocess.run(install_uv, capture_output=True, check=False).returncode:
        return False
    uv = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python", sys.executable]
    environment = {"SSL_CERT_FILE": pip["cert"]} if "cert" in pip else {}
    done = not subprocess.run(
        [*uv, *arguments, "--editable", project], check=False, env=environment | os.environ
    ).returncode
    if not done:
        print("uv did not install it; pip does", file=sys.stderr)
    return done


def main(project: str) -> int:
    """Install `project` (a path, with extras), editable; the exit status of what installed it."""
    if _installs_with_uv(project):
        return 0
    # Python compiles what it imports; compiling all that is installed takes longer than installing.
    pip = _pip("install", "--quiet", "--no-compile", "--editable", project)
    return subprocess.run(pip, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
