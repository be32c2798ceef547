"""XLA's SPMD partitioner in a child process, from the parent's side.

The idea: the child (``child.py``) is judged by the file that it dumps: once that is complete the
parent does not wait for the child, which some programs abort anyway.  Without the file, its last
output and the way it ended become one line.

    with Partitioner(512, Limits(1800, 2**35)) as partitioner:
        proto = partitioner.run(Compilation(bytecode))      # an HloProto
"""

from __future__ import annotations

from google.protobuf.message import DecodeError

from flint.frontends.jax.internals.questions import Answer, attending
from flint.frontends.jax.requests import ADVICE, Compilation, words_and_module
from flint.hlo.messages import parse_module
from flint.host.child_processes import Limits
from flint.host.module_process import ModuleProcess

_DUMP = "*after_spmd-partitioning*.hlo.pb"
#: For one device there is nothing to partition; XLA removes the annotations.
_DUMPS_OF_ONE = "*.sharding-removal.*.hlo.pb"


class Partitioner(ModuleProcess):
    """A child process that waits for modules.

    Args:
        devices: number of partitions.
        limits: the limits of the child.
        engine: the client; a name in ``child.ENGINES``.
        answer: answers for ops with a partitioning rule in Python, called while it works.
    """

    def __init__(
        self,
        devices: int,
        limits: Limits,
        *,
        engine: str = "cpu",
        answer: Answer | None = None,
    ) -> None:
        super().__init__(
            "flint.frontends.jax.partition.child",
            [engine, str(devices)],
            "XLA's partitioner",
            f"{devices:,} devices",
            limits,
            attend=attending(answer),
            advice=ADVICE,
        )
        self.devices, self.alone = devices, devices == 1

    def run(self, request: Compilation) -> bytes:
        """The partitioned module, an ``HloProto``.

        Raises:
            FlintError: the partitioner failed, or went over a limit.
        """
        self.begin(*words_and_module(request))
        data = self._result()
        if data is not None:
            return data
        raise self.failure()

    def _result(self) -> bytes | None:
        """The dump, as soon as it is complete; None if the child ends without one.

        The child's work after its dump is of no use, and takes half of the time of a large module.
        """
        seen = -1
        while True:
            ended = self.ended()
            if self.alone and ended:
                dumps = sorted(self.place.glob(_DUMPS_OF_ONE))
                return dumps[-1].read_bytes() if dumps else None
            dump = next(self.place.glob(_DUMP), None)
            size = dump.stat().st_size if dump is not None else -1
            # A file that has just grown is still being written.
            if dump is not None and (ended or size == seen):
                data = dump.read_bytes()
                if _is_whole(data):
                    return data
            if ended:
                return None
            seen = size
            self.check_limits()


def _is_whole(data: bytes) -> bool:
    try:
        return len(parse_module(data).computations) > 0
    except DecodeError:
        return False
