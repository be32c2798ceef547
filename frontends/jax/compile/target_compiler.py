"""XLA's GPU and TPU compilers in a child process, from the parent's side.

The idea: the compilers need no accelerator, only a description of one; the child
(``child.py``) makes as many devices as the mesh has and compiles for them.  It returns the program
that would run, with its schedule, and the compiler's own figures.

    with Optimizer("h100", (64, 8), Limits(1800, 2**35)) as optimizer:
        compiled = optimizer.run(Compilation(bytecode, parameters=12))
        compiled.module, compiled.report.needed_bytes
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from flint.errors import FlintError, UsageError
from flint.frontends.jax.compile.child import MODULE, REPORT, TEXT
from flint.frontends.jax.internals.compile_only import TPU_ENVIRONMENT
from flint.frontends.jax.internals.questions import TARGET, Answer, attending
from flint.frontends.jax.requests import ADVICE, Compilation, words_and_module
from flint.frontends.jax.targets.table import COMPILERS, table, tpu_topology
from flint.host.child_processes import Limits
from flint.host.environment import installed_version
from flint.host.module_process import ModuleProcess
from flint.workload.compiler_report import CompilerReport

_UNKNOWN = re.compile(r"No such compile option: '([^']*)'")
_WRONG = re.compile(r"While setting option (\S+), ('.*' is not a valid .* value)")


@dataclass(frozen=True, slots=True)
class Compiled:
    """A compiled program.

    Attributes:
        module: an ``HloModuleProto``.
        text: the same as HLO text; empty if the compiler gives none.
        report: the compiler's own figures.
        too_large: the compiler's message if the program does not fit the target's memory.
        added: compiler options without which the program would not compile.
    """

    module: bytes
    text: bytes
    report: CompilerReport
    too_large: str = ""
    added: Mapping[str, Any] = field(default_factory=dict)


class Optimizer(ModuleProcess):
    """A child process that waits for modules to compile.

    Args:
        target: name of a target that can be compiled for here.
        shape: of the mesh.
        limits: the limits of the child.
        answer: answers for ops with a partitioning rule in Python, called while it works.

    Raises:
        UsageError: the target has no slice of that many devices.
    """

    def __init__(
        self,
        target: str,
        shape: Sequence[int],
        limits: Limits,
        *,
        answer: Answer | None = None,
    ) -> None:
        self.target = table()[target]
        environment: dict[str, str] = {}
        devices = math.prod(shape)
        if self.target.platform == "tpu":
            tpu_topology(self.target, devices)
            accelerator = str(self.target.row["accelerator_type"])
            environment = {**TPU_ENVIRONMENT, "TPU_ACCELERATOR_TYPE": accelerator}
        super().__init__(
            "flint.frontends.jax.compile.child",
            [target, ",".join(map(str, shape))],
            f"XLA's compiler for {target}",
            f"{devices:,} devices",
            limits,
            environment,
            attending(answer),
            ADVICE,
        )

    def run(self, request: Compilation) -> Compiled:
        """The compiled module.

        Args:
            request: the global program, lowered for the target's platform.

        Raises:
            UsageError: an option that the compiler does not know, or a value that it does not
                accept.
            FlintError: the compiler failed, or went over a limit.
        """
        self.begin(*words_and_module(request))
        while not self.ended():
            self.check_limits()
        if not (self.place / REPORT).is_file():
            raise self._error(self.reason())
        report = json.loads((self.place / REPORT).read_bytes())
        return Compiled(
            (self.place / MODULE).read_bytes(),
            (self.place / TEXT).read_bytes(),
            self._report(report, request.options),
            str(report.get("too_large", "")),
            report.get("added", {}),
        )

    def _report(self, found: Mapping[str, Any], options: Mapping[str, Any]) -> CompilerReport:
        return CompilerReport(
            target=self.target.name,
            compiler=", ".join(
                f"{name} {installed_version(name)}" for name in COMPILERS[self.target.platform]
            ),
            options={**options, **found.get("added", {})},
            memory=self.target.memory,
            **found.get("memory", {}),
            **found.get("cost", {}),
        )

    def _error(self, reason: str) -> FlintError:
        unknown, wrong = _UNKNOWN.search(reason), _WRONG.search(reason)
        if unknown:
            return UsageError(f"--xla-option {unknown[1]}: the compiler has no such option")
        if wrong:
            return UsageError(f"--xla-option {wrong[1]}: {wrong[2]}")
        if TARGET in reason and "emitter" in reason:
            return FlintError(
                f"{self.what} does not support ops with a partitioning rule in Python "
                "(custom_partitioning): capture the partitioned level, or compile for a GPU"
            )
        return self.failure()
