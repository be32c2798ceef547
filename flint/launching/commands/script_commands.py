"""Running a shell script with other commands in place of those for Python programs.

The idea: a folder at the front of the script's path has a ``python``, a ``torchrun``, an ``srun``
and so on, which write down with what they were called (``started.py``).  Commands that set up an
environment or reach other machines do nothing.  Everything else is the script's own.

    ran = run(["bash", "train.sh"], variables, Hosts(per_node=8, number=4), limits, folder)
    ran.commands[0].words               # ("torchrun", "--nproc-per-node=8", "train.py")
"""

from __future__ import annotations

import functools
import json
import os
import select
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from flint import registry
from flint.cost.accelerators import load_accelerator
from flint.errors import FlintError
from flint.host.child_processes import Limits
from flint.host.tasks import run_all
from flint.launching import nvidia_smi
from flint.launching.commands import seen_gpus, started
from flint.launching.commands.tasks_of_jobs import LAUNCHERS
from flint.launching.commands.variables import hosts, variables

#: Commands that set something up, or reach other machines: they do nothing, successfully.
_IDLE = (
    "pip", "pip3", "module", "ml", "spack", "hf", "huggingface-cli", "wandb", "tensorboard", "ssh",
    "scp", "rsync", "pdsh", "dcgmi",
)  # fmt: skip
#: Commands that run another one, which comes after their options.
PASSING = ("chrt", "env", "ionice", "nice", "nohup", "setsid", "stdbuf", "timeout")
#: What these do first: a command that is named with its folder becomes ours, and they themselves
#: are those that come later in the path.
_PASS = """
own={own} found=
for word do
    shift
    if [ -z "$found" ] && [ "${{word#*/}}" != "$word" ] && [ -x "$own/${{word##*/}}" ]; then
        word=$own/${{word##*/}} found=1
    fi
    set -- "$@" "$word"
done
IFS=:
for folder in $PATH; do
    [ "$folder" = "$own" ] || [ ! -x "$folder/{name}" ] || exec "$folder/{name}" "$@"
done
echo "{name}: not found" >&2
exit 127
"""
#: Where clients of HTTP find no other machine: a port of this one to which nothing listens.
_NOWHERE = "http://127.0.0.1:9"
_PROXIES = ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "all_proxy")
#: Variables that belong to the shell.
_OF_SHELL = frozenset(("_", "SHLVL", "PWD", "OLDPWD", "PATH", "BASH_ENV", started.AROUND))
#: Bytes of a command that tell what runs it.
_BEGIN = 256
#: Seconds that commands in the background have to begin when their script has ended.
_IN_BACKGROUND = 5.0
#: Seconds that its process has besides, to say that it took too long.
_LONGER = 30.0
#: Slurm's command that lists a job's hosts, of which a program takes the first.
_HOSTS_OF_JOB = "scontrol"
#: Bash, before each command: a file to be read in that is not here, as a cluster's environments are
#: not, is passed over, and a command that is named with its folder is ours: by a function for this
#: one time, because the command itself would have other arguments in a function.
_LOOKING = r"""
set -T
_flint_look() {
    local word value="([^[:space:]\"']|\"[^\"]*\"|'[^']*')*" name='[A-Za-z_][A-Za-z0-9_]*'
    local plain='[^[:space:]`<>();&|]+'
    [[ $1 =~ ^($name=$value[[:space:]]+)*((source|\.|exec)[[:space:]]+)?($plain) ]] || return 0
    local verb=${BASH_REMATCH[4]}
    word=$(trap - DEBUG; eval "printf %s ${BASH_REMATCH[5]}" 2>/dev/null) || return 0
    [[ $word == */* ]] || return 0
    case $verb in
    source | .)
        [[ -e $word ]] && return 0
        source() { unset -f source .; echo "$1 is not here: passed over" >&2; }
        function . { unset -f source .; echo "$1 is not here: passed over" >&2; } ;;
    *)
        [[ $word =~ ^[A-Za-z0-9_./+-]+$ && -x $_flint_own/${word##*/} ]] || return 0
        eval "function $word { command '$_flint_own/${word##*/}' \"\$@\"; }"
        [[ $verb ]] && exec() { "$@"; builtin exit; } ;;
    esac
    return 0
}
trap '_flint_look "$BASH_COMMAND"' DEBUG
"""
_NOTES, _STATUS = "commands", "status"
_GPU = "h100"
#: Characters of a line that a message shows.
_MOST_SHOWN = 200


@dataclass(frozen=True, slots=True)
class Hosts:
    """What a script sees of the cluster.

    Attributes:
        per_node: GPUs of a host.
        number: hosts.
        device: accelerator, as named in ``flint.cost.accelerators``.
        has_network: the script may reach other machines.
    """

    per_node: int
    number: int
    device: str | None = None
    has_network: bool = False


@dataclass(frozen=True, slots=True)
class Command:
    """A command of a Python program that a script has started.

    Attributes:
        words: it, with launchers around it.
        folder: where.
        variables: those that the script has set or changed.
    """

    words: tuple[str, ...]
    folder: str
    variables: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Ran:
    """What a script did.

    Attributes:
        commands: those that it started, in order.
        status: its own.
        last: the last line that it printed; "" if it printed nothing.
    """

    commands: list[Command]
    status: int
    last: str


def run(
    words: Sequence[str], added: Mapping[str, str], seen: Hosts, limits: Limits, folder: Path
) -> Ran:
    """Run a script.

    Args:
        words: its command line.
        added: variables that it has besides this process's.
        seen: what it sees of the cluster.
        limits: of the process that runs it.
        folder: for files.

    Raises:
        FlintError: it takes more than the limits.
    """
    own = folder / "bin"
    own.mkdir()
    notes = folder / _NOTES
    notes.touch()
    _write_commands(own, notes, seen)
    begun = {
        "CONDA_PREFIX": sys.prefix,  # where the environment that it activates would be
        **os.environ,
        **added,
        "PATH": os.pathsep.join(filter(None, (str(own), os.environ.get("PATH")))),
        "BASH_ENV": str(own / "functions"),
        **({} if seen.has_network else dict.fromkeys(_PROXIES, _NOWHERE)),
    }
    work = functools.partial(_be_script, words, begun, limits.seconds)
    longer = replace(limits, seconds=limits.seconds + _LONGER)
    place = run_all(work, [0], folder, longer)[0]
    commands = [
        Command(tuple(item["words"]), item["folder"], _changed(item["variables"], begun, own))
        for item in map(json.loads, notes.read_text(encoding="utf-8").splitlines())
    ]
    return Ran(commands, int((place / _STATUS).read_text()), _last_line(place))


def _be_script(
    words: Sequence[str], variables: Mapping[str, str], seconds: float, _: int, folder: Path
) -> None:
    """In a child process: run a script and wait for it, and for what it began in the background."""
    reads, writes = os.pipe()
    process = subprocess.Popen(
        words, env=variables, stdin=subprocess.DEVNULL, stdout=2, pass_fds=(writes,)
    )
    os.close(writes)
    try:
        status = process.wait(seconds)
    except subprocess.TimeoutExpired:
        raise FlintError(
            f"{shlex.join(words)} took more than {seconds:g} s and was stopped: raise the time "
            "limit (--time-limit), or give the program that it starts"
        ) from None
    select.select([reads], [], [], _IN_BACKGROUND)
    (folder / _STATUS).write_text(str(status))


def _write_commands(own: Path, notes: Path, seen: Hosts) -> None:
    """Write the commands that scripts start instead of Python programs."""
    minor = f"python3.{sys.version_info.minor}"
    names = {"python", "python3", minor, *registry.LAUNCHERS, *_installed()} - set(_IDLE)
    noting = [sys.executable, "-I", "-S", started.__file__, str(notes), sys.executable]
    noting.append(os.pathsep.join(sorted(names)))
    every = names | {*LAUNCHERS, *started.WRAPPERS, started.BATCH} - set(_IDLE)
    texts = {name: f'exec {shlex.join([*noting, name])} "$@"' for name in sorted(every)}
    world = seen.number * seen.per_node
    job = variables("srun", 0, world=world, per_host=seen.per_node)
    Path(f"{notes}.job").write_text(json.dumps(job))
    seen_gpus.hook(Path(f"{notes}.gpus"), seen.per_node)
    texts |= dict.fromkeys(_IDLE, "exit 0")
    texts |= {name: _PASS.format(own=shlex.quote(str(own)), name=name) for name in PASSING}
    texts[_HOSTS_OF_JOB] = _listing(seen.number)
    for name, text in texts.items():
        _write(own / name, text)
    (own / "activate").touch()  # `source activate`
    # A virtual environment that the script activates comes before all of these, functions do not.
    functions = "".join(
        f'{name}() {{ command {shlex.quote(str(own / name))} "$@"; }}\n' for name in texts
    )
    (own / "functions").write_text(f"{functions}_flint_own={shlex.quote(str(own))}\n{_LOOKING}")
    if shutil.which(nvidia_smi.NAME) is None:
        found = load_accelerator(seen.device or _GPU)
        nvidia_smi.write(own, found.name, found.memory_bytes, "[N/A]", seen.per_node)


def provide_hosts(folder: Path, number: int) -> None:
    """Let this process ask Slurm for a job's hosts (``scontrol show hostnames``), if it cannot."""
    if shutil.which(_HOSTS_OF_JOB) is None:
        folder.mkdir()
        _write(folder / _HOSTS_OF_JOB, _listing(number))
        os.environ["PATH"] = os.pathsep.join(filter(None, (os.environ.get("PATH"), str(folder))))


def _listing(number: int) -> str:
    return f"printf '%s\\n' {shlex.join(hosts(number))}"


def _write(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def _installed() -> Iterator[str]:
    """Commands of Python packages that are installed beside Flint."""
    for path in Path(sys.executable).parent.iterdir():
        if path.is_file() and "python" in interpreter(path) and not path.suffix:
            yield path.name


def _changed(found: Mapping[str, str], begun: Mapping[str, str], own: Path) -> dict[str, str]:
    """Variables that a script has set; those of ranks too, which the cluster sets for programs."""
    changed = {
        name: text
        for name, text in found.items()
        if begun.get(name) != text and name not in _OF_SHELL and not name.startswith("BASH_FUNC_")
    }
    path = [item for item in found.get("PATH", "").split(os.pathsep) if item != str(own)]
    if os.pathsep.join(path) != os.environ.get("PATH"):
        changed["PATH"] = os.pathsep.join(path)
    return changed


def interpreter(path: Path) -> str:
    """The name of the command that runs a script; "" for any other file."""
    try:
        with path.open("rb") as file:
            line = file.readline(_BEGIN)
    except OSError:
        return "bash" if path.suffix == ".sh" else ""
    if not line.startswith(b"#!"):
        return "bash" if path.suffix == ".sh" else ""
    names = [os.path.basename(word) for word in line[2:].decode("utf-8", "replace").split()]
    return next((name for name in names if name not in ("env", "-S")), "")


def _last_line(folder: Path) -> str:
    lines = (folder / "stderr").read_text(errors="replace").split("\n")
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    return last[:_MOST_SHOWN]
