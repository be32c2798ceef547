"""Where a simulation would be truer: the program as the system's own compiler makes it.

The idea: kernel granularity joins ops by rules, and XLA's compiler for the system's devices decides
itself, without a device.  Where it is installed, and the program is one that it compiles, a note
says so, with the option that does it.
"""

from __future__ import annotations

from flint.capturing.targets import target_of_system
from flint.cost.hardware import System
from flint.workload.programs import Level, Order
from flint.workload.workload import Workload


def truer_level(workload: Workload, system: str | System) -> tuple[str, ...]:
    """A note where XLA's compiler for a system can be had for a program; else nothing.

    Args:
        workload: what is simulated.
        system: on what.
    """
    if workload.level != Level.PARTITIONED or workload.order != Order.MODELLED:
        return ()
    target = target_of_system(system)
    if target is None or target.missing:
        return ()
    if target.largest is not None and workload.mesh.size > target.largest:
        return ()
    how = "convert" if "file" in workload.input else "capture"
    return (
        f"kernels follow Flint's fusion rules; XLA's own compiler for {target.name} is "
        f"installed: flint {how} ... --level optimized --target {target.name} is more accurate",
    )
