"""When a simulation could be more accurate: the program as compiled for the system.

The idea: kernel granularity joins ops by rules, but XLA's compiler for the system's devices, which
needs no device, decides exactly; and code that a PyTorch program compiles was recorded op by op.  A
note names the option that uses the compiler.

    truer_level(workload, "dgx-h100")
"""

from __future__ import annotations

from typing import Final

from flint.capturing.targets import obstacle, target_of_system
from flint.cost.hardware import System
from flint.workload.programs import Level, Order
from flint.workload.workload import Workload

#: What frontends' warnings say of code that the program compiles and the capture did not.
EAGER: Final = "recorded as eager code"


def truer_level(workload: Workload, system: str | System) -> tuple[str, ...]:
    """Notes about a program that is compiled for the system, and was not.

    Args:
        workload: what is simulated.
        system: the system that it runs on.
    """
    if any(EAGER in text for text in workload.warnings):
        return (_compiled_by_itself(workload, system),)
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


def _compiled_by_itself(workload: Workload, system: str | System) -> str:
    """The note about a program that calls ``torch.compile``."""
    parts = workload.level == Level.OPTIMIZED
    said = (
        f"{'parts of the code' if parts else 'code'} that the program compiles (torch.compile) "
        f"{'were' if parts else 'was'} {EAGER}: compiled, its kernels and what it keeps in memory "
        "are others"
    )
    target = target_of_system(system)
    if parts or target is None or obstacle(target.name, workload.mesh.size, "torch"):
        return said
    return f"{said}; --level optimized --target {target.name} compiles it"
