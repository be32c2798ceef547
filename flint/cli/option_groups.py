"""Groups of options that several commands share, each as one object.

The idea: a command takes a parameter whose type is a dataclass, and ``with_options`` shows each of
its fields as an option of the command line, with the help and the default that the field has.

    @with_options
    def capture_command(step: str, *, options: ProgramOptions, traces: TraceOptions) -> None: ...
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Any, get_type_hints

from flint.cli.options import (
    AnnotateOption,
    CommunicationOrderOption,
    GranularityOption,
    RanksOption,
    ReduceRanksOption,
    UnorderedStartsOption,
    WithoutOption,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceOptions:
    """Which traces to write for a workload, as given on the command line."""

    without: WithoutOption = None
    ranks: RanksOption = "all"
    reduce_ranks: ReduceRanksOption = None
    granularity: GranularityOption = "kernel"
    communication_order: CommunicationOrderOption = "rank"
    unordered_starts: UnorderedStartsOption = False
    annotate: AnnotateOption = False


def given(options: Any) -> dict[str, bool]:
    """For each option of a group: whether its value differs from the default."""
    return {
        f"--{item.name.replace('_', '-')}": getattr(options, item.name) not in (item.default, [])
        for item in fields(options)
    }


def words_of(options: Any) -> tuple[str, ...]:
    """The words of a command line that give these options: only those that are not the default."""
    words: list[str] = []
    for item in fields(options):
        value, name = getattr(options, item.name), f"--{item.name.replace('_', '-')}"
        if value is True:
            words.append(name)
        elif value not in (item.default, []):
            for one in value if isinstance(value, list) else [value]:
                words += [name, str(one)]
    return tuple(words)


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """The command with each parameter that is a group replaced by one option per field."""
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: kind for name, kind in hints.items() if is_dataclass(kind)}
    parameters: list[Parameter] = []
    for parameter in signature(command).parameters.values():
        if parameter.name not in groups:
            parameters.append(parameter.replace(annotation=hints[parameter.name]))
            continue
        kinds = get_type_hints(groups[parameter.name], include_extras=True)
        parameters += [
            Parameter(
                item.name, Parameter.KEYWORD_ONLY, default=item.default, annotation=kinds[item.name]
            )
            for item in fields(groups[parameter.name])
        ]

    @wraps(command)
    def run(**values: Any) -> None:
        chosen = {
            name: kind(**{item.name: values.pop(item.name) for item in fields(kind)})
            for name, kind in groups.items()
        }
        command(**values, **chosen)

    vars(run)["__signature__"] = Signature(parameters)
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run
