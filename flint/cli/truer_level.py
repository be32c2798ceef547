"""When a simulation could be more accurate: the program as compiled for the system.

The idea: kernel granularity joins ops by rules, but XLA's compiler for the system's devices, which
needs no device, decides exactly.  If it is installed and can compile the program, a note names the
option that uses it.
"""

from __future__ import annotations

from flint.capturing.targets import target_of_system
from flint.cost.hardware import System
from flint.workload.programs import Level, Order
from flint.workload.workload import Workload


def truer_level(workload: Workload, system: str | System) -> tuple[str, ...]:
    """A note if XLA's compiler for the system is installed and fits the program; else nothing.

    Args:
        workload: what is simulated.
        system: the system that it runs on.
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
