"""Shell scripts that start training programs: what bash itself makes of them is the program."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap

import pytest

from flint.errors import FlintError, UsageError
from flint.launching.commands.shell_scripts import Given, program_of

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("")
    (tmp_path / "prepare.py").write_text("")
    return tmp_path


def script(folder, text, name="train.sh"):
    (folder / name).write_text(textwrap.dedent(text))
    return ["bash", name]


def test_the_program_has_the_words_folder_and_variables_of_its_script(folder):
    (folder / "inner").mkdir()
    (folder / "inner" / "train.py").write_text("")
    text = """
        set -euo pipefail
        ARGS=(--name "two words" --lr 3e-4)
        export MODE=fast EMPTY=
        cd inner
        ONE=1 {} train.py "${{ARGS[@]}}" --steps $((2 * 5)) 2>&1 | tee log
    """
    shown = "python3 -c 'import os,sys; print(sys.argv[1:], os.environ[\"ONE\"], os.getcwd())'"
    words = script(folder, text.format(shown))
    bash = subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()
    found = program_of(script(folder, text.format("python")), Given(world=2))
    arguments = [found.target, *found.arguments]
    assert f"{arguments} {found.environment['ONE']} {found.folder}" == bash
    assert (found.environment["MODE"], found.environment["EMPTY"]) == ("fast", "")
    assert not {"PATH", "RANK", "BASH_ENV", "http_proxy"} & set(found.environment)


@pytest.mark.parametrize(
    "line",
    [
        "exec python train.py 1",
        "nohup python -u train.py 1 > log 2>&1 &",
        "env A=1 python3 train.py 1",
        "bash -c 'python train.py 1'",
        "(cd . && $(which python) train.py 1)",
        "PATH=/usr/bin:/bin; python train.py 1",
        "/usr/bin/python3 train.py 1",
        "A=/usr; C='x y' ONE=$A ${A}/bin/python3 train.py 1 > log &\nwait",
        'PYTHON=/opt/conda/bin/python; "$PYTHON" -u train.py 1 | cat',
        "(exec /opt/conda/bin/python train.py 1)",
        'run() { /opt/conda/bin/torchrun "$@"; }; run train.py 1',
        "nohup /usr/bin/python3 -u train.py 1 > log 2>&1 &",
        "sh -c 'A=1 timeout -s KILL 60 env B=2 nice -n 5 /opt/conda/bin/python train.py 1'",
        "[[ $(timeout 60 echo /bin/x 1) == '/bin/x 1' ]] && env --unset=A python train.py 1",
        "mpirun -np 2 bash -c 'python train.py 1'",
        "uv run --with x python -m torch.distributed.run train.py 1 && uv pip install python",
        "nsys profile -o report python train.py 1",
        "docker run -v $PWD:/work image bash -c 'conda activate x; python train.py 1'",
        "uv run train.py 1",
        "ray start --head; ray job submit -- python3 train.py 1",
        "sbatch -N 2 <<EOF\nsrun python train.py \\$SLURM_NNODES\nEOF",
    ],
)
def test_a_program_is_found_however_its_script_starts_it(folder, line):
    found = program_of(script(folder, line), Given(world=2))
    assert (found.target, found.arguments) == ("train.py", ("1",))


@pytest.mark.parametrize(
    "line",
    [
        "uv run --with x python train.py 1",
        "env A=1 nohup python train.py 1",
        "time -p python -m torch.distributed.run train.py 1",
        "nsys profile -o run.nsys-rep uv run train.py 1",
        "srun --ntasks=2 numactl --cpunodebind=0 python train.py 1",
    ],
)
def test_a_command_around_a_program_is_left_away(folder, line):
    found = program_of(line.split(), Given(world=2))
    assert (found.target, found.arguments) == ("train.py", ("1",))


def test_variables_before_a_command_are_the_program_s(folder):
    found = program_of(["A=one two", "python", "train.py"], Given(world=2))
    assert (found.target, found.environment["A"]) == ("train.py", "one two")


def test_a_script_sees_the_cluster(folder):
    pytest.importorskip("torch")
    text = """
        #!/bin/bash
        #SBATCH --nodes=4
        #SBATCH --gpus-per-node=2
        set -e
        source activate mine
        module load cuda; conda activate mine; pip install -r none.txt
        HEAD=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
        srun torchrun --nnodes $SLURM_NNODES --nproc-per-node $(nvidia-smi -L | wc -l) \\
            --rdzv-endpoint $HEAD:29500 train.py $(scontrol show hostnames | wc -l)
    """
    script(folder, text.strip().replace("\n        ", "\n"))
    found = program_of(["sbatch", "-p", "gpu", "train.sh"], Given())
    assert (found.per_node, found.nodes, found.arguments) == (2, 4, ("4",))
    assert (found.launchers, found.manager) == (("torchrun",), "srun")
    assert program_of(["sbatch", "train.sh"], Given(world=16, per_node=8)).arguments == ("2",)


def test_files_of_an_environment_that_is_elsewhere_are_passed_over(folder):
    (folder / "settings.sh").write_text("STEPS=$1\n. /none/here/either\n")
    text = """
        set -euo pipefail
        HERE=/none
        source $HERE/bin/activate
        . "${HERE}/two words"/bin/activate || true
        source settings.sh
        python train.py $STEPS
    """
    assert program_of([*script(folder, text), "7"], Given(world=2)).arguments == ("7",)


def test_other_commands_that_are_named_with_their_folder_really_run(folder):
    (folder / "tool").write_text("#!/bin/sh\necho $1 > made\n")
    (folder / "tool").chmod(0o755)
    program_of(script(folder, "exec 2> log\nA=1 ./tool 3\npython train.py 1"), Given(world=2))
    assert (folder / "made").read_text() == "3\n"


def test_a_script_without_a_job_is_one_of_each_host(folder):
    """As Kubeflow's PyTorchJob starts it: RANK and WORLD_SIZE are those of hosts."""
    text = "python train.py --nodes $WORLD_SIZE --node $RANK --of $MASTER_ADDR:$MASTER_PORT"
    found = program_of(script(folder, text), Given(world=16, per_node=8))
    assert found.arguments == ("--nodes", "2", "--node", "0", "--of", "127.0.0.1:29500")
    assert found.launchers == ("torchrun",)


def test_ranks_that_a_script_names_are_those_of_each_process(folder):
    text = "export RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID; python train.py"
    found = program_of(["srun", "-n", "4", *script(folder, text)], Given())
    assert found.launchers == ("srun", "torchrun")
    assert not {"RANK", "LOCAL_RANK"} & set(found.environment)
    assert (found.per_node, found.nodes) == (4, 1)


def test_python_without_a_program_really_runs(folder):
    text = f'[ "$(python -c "print(6 * 7)")" = 42 ] && {os.path.basename(sys.executable)} train.py'
    assert program_of(script(folder, text), Given(world=2)).target == "train.py"


def test_a_script_may_ask_pytorch_for_the_gpus_of_its_host(folder):
    pytest.importorskip("torch")
    asked = "import torch; assert torch.cuda.is_available(); print(torch.cuda.device_count())"
    text = f"python train.py $(python -c '{asked}')"
    assert program_of(script(folder, text), Given(world=12, per_node=6)).arguments == ("6",)


def test_the_program_of_a_launcher_is_the_training(folder):
    text = "python prepare.py\nmpirun -np 2 python train.py\n"
    found = program_of(script(folder, text), Given())
    assert found.target == "train.py"
    assert found.remarks == ("bash train.sh: python prepare.py does not run",)


def test_of_several_programs_one_is_chosen(folder):
    words = script(folder, "python prepare.py\npython train.py\nexit 3")
    with pytest.raises(UsageError, match=r"starts 2 programs: choose .* 2 python train.py"):
        program_of(words, Given(world=2))
    found = program_of(words, Given(world=2, number=2))
    assert found.target == "train.py"
    assert found.remarks[1].startswith("bash train.sh ended with status 3 after its programs")
    with pytest.raises(UsageError, match=r"--command 3: bash train\.sh starts 2 programs"):
        program_of(words, Given(world=2, number=3))
    with pytest.raises(UsageError, match="for a shell script that starts several programs"):
        program_of(["python", "train.py"], Given(world=2, number=1))


def test_a_script_without_a_program_says_how_it_ended(folder):
    words = script(folder, "set -e\nnone-such train.py\n")
    with pytest.raises(FlintError, match=r"status 127 and started no Python program .*none-such"):
        program_of(words, Given(world=2))
    with pytest.raises(UsageError, match=r"none\.sh: No such file"):
        program_of(["bash", "none.sh"], Given(world=2))


def test_a_script_that_does_not_end_is_stopped(folder):
    words = script(folder, "sleep 1000; python train.py")
    with pytest.raises(FlintError, match=r"bash train\.sh took more than 0\.1 s and was stopped"):
        program_of(words, Given(world=2, time_limit=0.1))


def test_a_script_reaches_no_other_machine(folder):
    text = """
        [ "$http_proxy" = "$https_proxy" ] && ssh other true && python train.py "$https_proxy"
    """
    found = program_of(script(folder, text), Given(world=2))
    assert found.arguments == ("http://127.0.0.1:9",)
