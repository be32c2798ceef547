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
    def map_array(self, function, *iterables):
        raise RuntimeError("sbatch is not there")
    submit_array = map_array
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


def test_the_jobs_of_an_array_run_one_after_the_other(said, tmp_path):
    """With the arguments that submitit's documentation gives them: 1 and 10, 2 and 20."""
    (tmp_path / "submitit.py").write_text(SUBMITIT)
    assert said("""
        import functools, submitit
        from flint.frontends.torch.context import capture
        executor = submitit.Executor(folder="logs")
        executor.update_parameters(tasks_per_node=4)
        def add(a, b):
            return [a + b, os.environ["SLURM_PROCID"]]
        mapped = executor.map_array(add, [1, 2], [10, 20])
        given = executor.submit_array([functools.partial(add, 3, 30)])
        [said] = [text for text in capture().assumed if "jobs" in text]
        say([job.result() for job in mapped + given], said[:28])
    """) == [[[11, "5"], [22, "5"], [33, "5"]], "an array of 2 jobs is submitted"[:28]]
