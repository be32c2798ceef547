"""Programs that submit their training with ``submitit``: the job runs here, as one of its tasks.

submitit pickles a function, and Slurm starts it once for each task, with Slurm's variables, from
which ``submitit.JobEnvironment`` tells a task its rank.  This process already is a rank: the
function runs when it is submitted, with the variables of this rank's task.  So do the jobs of an
array, one after the other.

    executor = submitit.AutoExecutor(folder="logs")
    executor.update_parameters(nodes=4, gpus_per_node=8, tasks_per_node=8)
    executor.submit(Trainer(args))                       # calls Trainer(args)() as this rank
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Iterable
from typing import Any

from flint.frontends.torch.context import capture
from flint.frontends.torch.patching import around, replace
from flint.frontends.torch.user_lines import at_user_line
from flint.host.imports import watch_imports
from flint.launching.commands.variables import variables
from flint.launching.launched import fits
from flint.launching.program import Cluster

_PACKAGE = "submitit"
#: What submitit's executors call the tasks on each host.
_TASKS = ("ntasks_per_node", "tasks_per_node")


def apply(cluster: Cluster) -> None:
    """Run jobs as the program submits them; once it imports the package."""
    watch_imports({_PACKAGE: functools.partial(_provide, cluster)})


def _provide(cluster: Cluster) -> None:
    package = sys.modules[_PACKAGE]
    around(package.Executor, "submit", functools.partial(_submit, cluster))
    for name, functions in (("map_array", _mapped), ("submit_array", list)):
        if hasattr(package.Executor, name):
            around(package.Executor, name, functools.partial(_submit_all, cluster, functions))
    # The cluster has Slurm, whether this machine has its commands or not.
    replace(package.SlurmExecutor, "affinity", classmethod(lambda _: 2))


class _Done:
    """A job that has run.

    Attributes:
        job_id: as Slurm's variables say.
        state: in Slurm's word.
        num_tasks: on all hosts.
    """

    def __init__(self, result: Any, tasks: int) -> None:
        self.job_id, self.state, self.num_tasks = "1", "COMPLETED", tasks
        self._result = result

    def result(self) -> Any:
        """What the function has returned."""
        return self._result

    def results(self) -> list[Any]:
        """The same of each task."""
        return [self._result] * self.num_tasks

    def done(self, force_check: bool = False) -> bool:
        """It is."""
        return True

    def exception(self) -> None:
        """An error has ended the program."""

    wait = exception


def _submit(
    cluster: Cluster, _: Any, executor: Any, function: Any, *args: Any, **kwargs: Any
) -> _Done:
    tasks = _tasks(executor)
    rank, world, per_host = capture().rank(), cluster.world, min(cluster.per_node, cluster.world)
    if tasks == 1:  # which starts a host's ranks itself
        rank, world, per_host = rank // per_host, cluster.hosts, 1
    else:
        fits(tasks, cluster)
    for name in variables("torchrun", rank, world=world, per_host=per_host):
        os.environ.pop(name, None)
    os.environ.update(variables("srun", rank, world=world, per_host=per_host))
    os.environ["SUBMITIT_EXECUTOR"] = "slurm"
    os.environ["SUBMITIT_FOLDER"] = str(getattr(executor, "folder", "."))
    return _Done(function(*args, **kwargs), world)


def _submit_all(
    cluster: Cluster, functions: Callable[..., list[Any]], _: Any, executor: Any, *args: Any
) -> list[_Done]:
    every = functions(*args)
    if len(every) > 1:
        capture().assume(
            f"an array of {len(every):,} jobs is submitted{at_user_line()}; the step is of the "
            "first of them that trains"
        )
    return [_submit(cluster, _, executor, function) for function in every]


def _mapped(function: Any, *items: Iterable[Any]) -> list[Any]:
    return [functools.partial(function, *each) for each in zip(*items, strict=False)]


def _tasks(executor: Any) -> int:
    """Tasks on each host, as the program has asked for."""
    parameters = getattr(getattr(executor, "_executor", executor), "parameters", {})
    return next((parameters[name] for name in _TASKS if parameters.get(name)), 1)
