"""Programs that submit their training with submitit, which the tests' environment does not have."""

from __future__ import annotations

import pytest

#: What of submitit 1.5 a program calls before its job is pickled.
SUBMITIT = """
class SlurmExecutor:
    @classmethod
    def affinity(cls):
        return -1
class Executor:
    def __init__(self, folder):
        self.folder, self.parameters = folder, {}
    def update_parameters(self, **given):
        self.parameters.update(given)
    def submit(self, function, *args, **kwargs):
        raise RuntimeError("srun is not there")
"""


@pytest.mark.parametrize(
    ("tasks", "task"),
    # As Slurm numbers them: rank 5 of 16, 4 on a host; and the second host's only task.
    [(4, ["5", "1", "1", "16", "4"]), (1, ["1", "0", "1", "4", "4"])],
)
def test_a_submitted_job_runs_as_this_ranks_task(said, tmp_path, tasks, task):
    (tmp_path / "submitit.py").write_text(SUBMITIT)
    assert said(f"""
        import submitit
        def job(*names, first):
            return [os.environ[name] for name in names] + [first, "RANK" in os.environ]
        executor = submitit.Executor(folder="logs")
        executor.update_parameters(nodes=4, gpus_per_node=4, tasks_per_node={tasks})
        names = ["SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_NTASKS", "SLURM_NNODES"]
        done = executor.submit(job, *names, first=7)
        say(done.result(), done.job_id, os.environ["SUBMITIT_EXECUTOR"],
            os.environ["SUBMITIT_FOLDER"], submitit.SlurmExecutor.affinity() > 0)
    """) == [[*task, 7, False], "1", "slurm", "logs", True]
