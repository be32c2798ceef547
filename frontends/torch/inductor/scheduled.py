"""A kernel's arguments and the work of its loops, from Inductor's scheduler.

The idea: a kernel consists of scheduled nodes.  Each has a loop body with the operations per
element and its ranges, and the accessed parts of buffers as index expressions.  The bytes of a
buffer are those of the accessed elements, at most the whole buffer, as Inductor counts them itself;
buffers that stay within the kernel do not count.

Private parts of torch._inductor, as in torch 2.12 to 2.14 (``adapter.py`` has the rest).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from flint.frontends.torch.inductor.attention import products_of
from flint.frontends.torch.inductor.counted import product, size_of, work_of
from flint.frontends.torch.inductor.kernels import Argument, Kernel
from flint.frontends.torch.inductor.loops import Loops, loops_of

#: Results of templates, by their names in the source -> the setting without which they are not
#: stored.
_STORED_IF = {"LSE": "OUTPUT_LOGSUMEXP", "MAX": "OUTPUT_MAX"}


def kernel_of(name: str, schedule: Sequence[Any], kernel: Any, graph: Any) -> Kernel:
    """The description of a kernel.

    Args:
        name: of the kernel.
        schedule: Inductor's nodes in it, with markers between.
        kernel: Inductor's own description.
        graph: the graph being lowered (``V.graph``).
    """
    found = _Touched(graph)
    names = set(_buffers(kernel.args))
    templates = []
    nodes = list(_nodes(schedule, names))
    for node in nodes:
        found.add(node)
        if node.is_template():
            templates.append(node.node)
    stored = {name: item for each in templates for name, item in _stored(each, kernel)}
    given = list(found.arguments(kernel))
    buffers = [name for name, _ in given]
    products = next((products_of(each, kernel, buffers) for each in templates), None)
    arguments = tuple(stored.get(name, item) for name, item in given)
    loops = loops_of(nodes, kernel.args, graph, buffers)
    flops, transcendentals = work_of(kernel)
    return Kernel(name, arguments, flops, transcendentals, products, loops)


def loops_on_host(schedule: Iterable[Any], args: Any, graph: Any) -> Loops | None:
    """The loops of a kernel for the host, as ``loops_of``."""
    _, given, types = args.cpp_argdefs()
    buffers = [name for name, kind in zip(given, types, strict=True) if kind.endswith("*")]
    return loops_of((node for item in schedule for node in item.get_nodes()), args, graph, buffers)


def _stored(template: Any, kernel: Any) -> Iterator[tuple[str, Argument]]:
    """The buffers that a template's kernel stores to, apart from its result."""
    named = {node.get_name(): name for name, node in kernel.named_input_nodes.items()}
    for node in template.mutated_inputs or ():
        name, size = node.get_name(), math.prod(map(int, node.get_size()))
        size *= node.get_dtype().itemsize
        if name not in named:  # the gradient of what a score captures, which is added to
            yield name, Argument(size, size)
        else:
            is_stored = kernel.meta.get(_STORED_IF.get(named[name]), True)
            yield name, Argument(0, size if is_stored else 0)


def _nodes(schedule: Iterable[Any], names: set[str]) -> Iterator[Any]:
    """The loop nodes of a schedule; if it has several kernels, those of this one."""
    from torch._inductor.scheduler import BaseSchedulerNode, ForeachKernelSchedulerNode

    for item in schedule:
        if isinstance(item, ForeachKernelSchedulerNode):
            for part in item.snodes:
                if not names.isdisjoint(part.get_buffer_names()):
                    yield from part.get_nodes()
        elif isinstance(item, BaseSchedulerNode):
            yield from item.get_nodes()


def _buffers(args: Any) -> Iterator[str]:
    yield from args.input_buffers
    yield from args.output_buffers
    yield from args.inplace_buffers


class _Touched:
    """Elements of buffers that nodes read and write."""

    def __init__(self, graph: Any) -> None:
        self._graph = graph
        self._reads: dict[str, dict[Any, int]] = {}
        self._writes: dict[str, dict[Any, int]] = {}
        self._changed: set[str] = set()  # that were there before the kernel

    def add(self, node: Any) -> None:
        """Note the accesses of a node."""
        sizes = () if node.is_template() else (*node._body.sizes[0], *node._body.sizes[1])
        elements = product(self._graph, sizes)
        for output in node.get_outputs():
            self._changed.update(map(self._real, output.get_mutations()))
        for deps, known in (
            (node.read_writes.writes, self._writes), (node.read_writes.reads, self._reads),
        ):  # fmt: skip
            for dep in deps:
                name = self._real(dep.name)
                count = self._of(dep, elements)
                if count is None:
                    # A buffer that is modified in place: as much of it is read.
                    count = sum(self._writes.get(name, {}).values())
                known.setdefault(name, {})[dep] = count

    def _real(self, name: str) -> str:
        """The buffer behind a name that Inductor gave to a modified buffer."""
        return str(self._graph.scheduler.mutation_real_name.get(name, name))

    def _of(self, dep: Any, elements: int) -> int | None:
        """Elements that an access of a node touches, which runs over ``elements``; None if it
        states only the buffer's name.
        """
        from torch._inductor.dependencies import MemoryDep

        if not isinstance(dep, MemoryDep):
            return None
        if dep.is_indirect():
            return elements
        return size_of(self._graph, dep.get_numel())

    def _elements(self, name: str) -> int:
        return size_of(self._graph, self._graph.get_numel(name))

    def _bytes(self, known: dict[str, dict[Any, int]], names: Iterable[str]) -> int:
        """Bytes touched of the buffer that has these names."""
        found = 0
        for name in dict.fromkeys(self._real(item) for item in names):
            if name in known:
                count = min(sum(known[name].values()), self._elements(name))
                found = max(found, count * self._graph.get_dtype(name).itemsize)
        return found

    def _made(self) -> set[str]:
        """Buffers that the kernel creates, without those that it modifies."""
        return set(self._writes) - self._changed

    def arguments(self, kernel: Any) -> Iterator[tuple[str, Argument]]:
        """The buffers of a kernel's tensors, in the order of its call."""
        from torch._inductor.codegen.triton_utils import should_unwrap_unspec_arg

        args = kernel.args
        inplace = {item.inner_name: item for item in args.inplace_buffers.values()
                   if hasattr(item, "inner_name")}  # fmt: skip
        given = {self._real(buffer) for buffer in args.input_buffers}
        scratch = {item.inner_name: item for item in args.workspace_args}
        for definition, buffer, *_ in zip(*args.python_argdefs(), strict=False):
            name = definition.name
            if should_unwrap_unspec_arg(buffer):
                continue  # a number on the host, which the kernel is given as such
            if name in inplace:
                names = inplace[name].other_names
                # A buffer created in the kernel itself has not been stored before.
                old = [item for item in names if self._real(item) not in self._made()]
                read = self._bytes(self._reads, old)
                yield buffer, Argument(read, self._bytes(self._writes, names))
            elif buffer in args.output_buffers and name == args.output_buffers[buffer]:
                written = self._bytes(self._writes, [buffer])
                # What it modifies is read here, unless it is also a tensor that is only read.
                again = self._real(buffer) in self._changed - given
                read = max(self._bytes(self._reads, [buffer]), 1) if again else 0
                yield buffer, Argument(read, written)
            elif name in scratch:
                size = product(self._graph, [scratch[name].count]) * scratch[name].dtype.itemsize
                yield buffer, Argument(size, size)
            elif buffer in args.input_buffers:
                yield buffer, Argument(self._bytes(self._reads, [buffer]) or 1, 0)
