"""The origin of an op: module path, phase and the user's line.

The idea: three things are observed while a step runs: which module's ``forward`` is running,
whether the autograd engine or an optimizer is running, and which autograd node is being created or
executed.  Nodes are numbered as they are made (their sequence number), so that the number of the
node that the engine executes leads back to the module and the line of the forward op.  Numbers are
per thread: the engine must run in the thread that calls it.

    tracker = Tracker({module: "layers.3"})
    with watching(tracker): step()          # tracker.place() while an op is dispatched
"""

from __future__ import annotations

import bisect
import contextlib
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.utils.weak import WeakIdKeyDictionary

from flint.frontends.torch.user_lines import users_line

#: Names that wrappers insert between a module and the user's own name for it.
_WRAPPERS = frozenset(("_checkpoint_wrapped_module", "_fsdp_wrapped_module", "_orig_mod"))

#: Number of the nodes that add gradients up (UINT64_MAX): they belong to no forward op.
_ACCUMULATE = 2**64 - 1


@dataclass(frozen=True, slots=True)
class Place:
    """The origin of an op; fields as in ``recording.Op``."""

    phase: str = ""
    module: str = ""
    file: str = ""
    line: int = 0

    def in_phase(self, phase: str) -> Place:
        """The same place in another phase."""
        return replace(self, phase=phase)


def clean(path: str) -> str:
    """A module's path without what wrappers insert: "layers.0._checkpoint_wrapped_module.wq"."""
    return ".".join(part for part in path.split(".") if part not in _WRAPPERS)


class Tracker:
    """The code that is running.

    Attributes:
        names: paths of the modules that are known.
        roots: modules that were called outside of any known one.
        optimizers: the optimizers that have stepped.
        entered: called with each module that is called outside of any other one.
        ran_backward: called at the end of each backward pass.
        failed: the last error in a model's call with gradients, or in a backward pass; the next
            optimizer step forgets it.
    """

    def __init__(self, names: Mapping[torch.nn.Module, str] | None = None) -> None:
        # By identity: some modules are compared by their values (tensordict's).
        self.names: MutableMapping[torch.nn.Module, str] = WeakIdKeyDictionary()
        self.names.update(names or {})
        self.roots: list[torch.nn.Module] = []
        self.optimizers: list[torch.optim.Optimizer] = []
        self.entered: Callable[[torch.nn.Module], None] | None = None
        self.ran_backward: Callable[[], None] | None = None
        self.failed: BaseException | None = None
        self._stack: list[tuple[str, bool]] = []  # path, whether entered during a backward pass
        self._owners: list[str] = []
        self._gradients: dict[int, Any] = {}  # storages of gradients that pipeline stages exchange
        self._running: Counter[str] = Counter()
        self._ran_backward = False
        self._nodes: dict[int, tuple[str, str, int]] = {}  # node -> module, file, line
        self._marks: list[int] = []  # the node that came next when the module changed ...
        self._paths: list[str] = []  # ... and what it changed to

    # what happens

    @contextlib.contextmanager
    def module(self, path: str | None) -> Iterator[None]:
        """A module's code runs; None for a module without its own name."""
        if path is None:
            path = self._stack[-1][0] if self._stack else ""
        self._stack.append((path, self._running["backward"] > 0))
        self._mark(path)
        try:
            yield
        except Exception as error:
            # A checkpoint ends its forward pass by an error, which would hold what its calls do;
            # what leaves a backward pass is noted there.
            if torch.is_grad_enabled() and not self._running["backward"]:
                self.failed = error
            raise
        finally:
            self._stack.pop()
            self._mark(self._stack[-1][0] if self._stack else "")

    @contextlib.contextmanager
    def during(self, what: str) -> Iterator[None]:
        """The autograd engine ("backward") or an optimizer's step ("optimizer") runs, or a
        checkpointed part of the forward pass again ("recompute")."""
        self._running[what] += 1
        try:
            yield
        except Exception as error:
            self.failed = error
            raise
        finally:
            self._running[what] -= 1
            self._ran_backward |= what == "backward"
            if what == "backward" and not self._running[what] and self.ran_backward is not None:
                self.ran_backward()

    @contextlib.contextmanager
    def owner(self, path: str | None) -> Iterator[None]:
        """Work is done for a module whose code does not run; None for no other module."""
        if path is not None:
            self._owners.append(path)
        try:
            yield
        finally:
            if path is not None:
                self._owners.pop()

    def exchanges(self, gradients: Iterable[torch.Tensor]) -> None:
        """Pipeline stages are about to send or receive gradients."""
        for item in gradients:
            storage = item.untyped_storage()
            self._gradients[storage._cdata] = storage

    def is_inside(self) -> bool:
        """Whether a module's code, a backward pass or an optimizer runs."""
        return bool(self._stack or any(self._running.values()))

    def is_gradient(self, tensor: torch.Tensor) -> bool:
        """Whether a message of pipeline stages is a gradient."""
        return tensor.untyped_storage()._cdata in self._gradients

    def call_module(self, module: torch.nn.Module) -> contextlib.AbstractContextManager[None]:
        """A module is called; the first one outside of any known module is a root."""
        if self.entered is not None and not self._stack:
            self.entered(module)
        path = self.names.get(module)
        if path is None and not self._stack:
            for name, child in module.named_modules():
                self.names.setdefault(child, clean(name))
            path = ""
            self.roots.append(module)
        return self.module(path)

    def restart(self) -> None:
        """A new step begins."""
        self._ran_backward = False
        self._nodes.clear()

    def _mark(self, path: str) -> None:
        number = torch._C._autograd._get_sequence_nr()
        if self._marks and self._marks[-1] == number:
            self._paths[-1] = path
        else:
            self._marks.append(number)
            self._paths.append(path)

    # what is asked

    def place(self) -> Place:
        """The origin of the op that is being dispatched."""
        phase = self._phase()
        node = torch._C._current_autograd_node() if self._running["backward"] else None
        if node is not None and phase == "backward":
            module, file, line = self._of_node(node)
        else:
            module = self._stack[-1][0] if self._stack else ""
            file, line = users_line(sys._getframe(1))
        if self._owners:
            module = self._owners[-1]
        return Place(phase, module, file, line)

    def made(self, place: Place) -> None:
        """An op was dispatched: the last created autograd node, if new, belongs to it."""
        if torch.is_grad_enabled() or place.phase in ("forward", "recompute"):
            number = torch._C._autograd._get_sequence_nr() - 1
            self._nodes.setdefault(number, (place.module, place.file, place.line))

    def _phase(self) -> str:
        if self._running["optimizer"]:
            return "optimizer"
        if self._running["backward"]:
            again = self._running["recompute"] or (self._stack and self._stack[-1][1])
            return "recompute" if again else "backward"
        if not self._stack and self._ran_backward and not torch.is_grad_enabled():
            return "optimizer"  # between backward pass and step: clipping, scaling, zeroing
        return "forward"

    def _of_node(self, node: Any) -> tuple[str, str, int]:
        """Module, file and line of the forward op that an autograd node differentiates."""
        number = node._sequence_nr()
        known = self._nodes.get(number)
        if known is not None:
            return known
        at = bisect.bisect_right(self._marks, number) - 1
        inside = at >= 0 and number != _ACCUMULATE
        return self._paths[at] if inside else "", *users_line(sys._getframe(1))
