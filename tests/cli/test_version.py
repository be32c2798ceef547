"""``flint --version``, and what the command line leaves of its start in the environment."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import metadata

import pytest

from flint.cli import main


def test_the_version_is_that_of_the_distribution(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"flint-workload {metadata.version('flint-workload')}\n"


@pytest.mark.parametrize("given", [None, "3"])
def test_threads_of_linear_algebra_stay_the_users_choice(given):
    code = (
        "import os\nfrom flint.cli import main\n"
        "try:\n    main(['systems', '--json'])\n"
        "except SystemExit:\n    print(os.environ.get('OPENBLAS_NUM_THREADS'))"
    )
    environment = {k: v for k, v in os.environ.items() if k != "OPENBLAS_NUM_THREADS"}
    if given is not None:
        environment["OPENBLAS_NUM_THREADS"] = given
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
    )
    assert run.stdout.splitlines()[-1] == str(given)
