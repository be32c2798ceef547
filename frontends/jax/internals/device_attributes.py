"""The attributes of ``jax.devices()``: the cluster's instead of this machine's.

The idea: JAX's devices are one class, whose attributes are computed here from the number of the
device and a ``Layout``.  XLA does not use them, so compiling and running are unchanged.  If the
number of slices is not given, code that builds a mesh of several slices determines it.

    show(layout)                                    # before or after jax makes its client
    jax.devices()[300].process_index                # 37
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

from flint.capturing.user_frames import running_line, short_path
from flint.frontends.jax.cluster.layout import Layout

_NAMES = {"cpu": "Cpu", "gpu": "Cuda", "tpu": "Tpu"}
#: The clusters that devices have been shown as.
_SHOWN: list[Shown] = []
#: Assumptions made before that, text -> count.
_ASSUMED: dict[str, int] = {}
#: The attributes that devices had before, None if they had none.
_OWN: dict[str, Any] = {}


class Shown:
    """The cluster that devices belong to.

    Attributes:
        layout: its layout.
        assumed: assumptions about it for the program, text -> count.
        held: bytes of a device that a program holds; None if they are not counted.
        client: the client that has its devices; None: all devices are its.
    """

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.assumed: dict[str, int] = {}
        self.held: Callable[[], int] | None = None
        self.client: Any = None
        self._peak = 0

    def has(self, device: Any) -> bool:
        """Whether a device is one of the cluster's, and not the host's own processor."""
        return self.client is None or device.client is self.client

    def memory(self) -> dict[str, int] | None:
        """Statistics of a device's memory, as far as known; None for CPUs, which have none."""
        size = self.layout.memory
        if size is None or self.held is None:
            return None if size is None else {"bytes_limit": size}
        held = self.held()
        self._peak = max(self._peak, held)
        where, line = running_line()
        text = (
            f"memory in use is read at {short_path(where)}:{line}: assumed to be the size of the "
            "arrays that the program holds, without temporary buffers of its jitted functions"
        )
        self.assumed[text] = self.assumed.get(text, 0) + 1
        return {"bytes_limit": size, "bytes_in_use": held, "peak_bytes_in_use": self._peak}

    def ask_for_slices(self, slices: int) -> None:
        """A program builds a mesh over that many slices, each with a separate network."""
        if self.layout.slices is None and slices > 1 and self.layout.devices % slices == 0:
            where, line = running_line()
            self.layout = self.layout.with_slices(slices)
            text = (
                f"the devices form {slices} slices, as in the mesh at {short_path(where)}:{line}; "
                "--slices sets another number"
            )
            self.assumed[text] = 1


def show(layout: Layout) -> Shown:
    """Give all devices of jax the attributes of the cluster's; no client is created.

    Python attributes of the client, such as its platform, stay unchanged.
    """
    from jaxlib import _jax

    shown = Shown(layout)
    device: Any = _jax.Device
    for name, answer in _answers(shown).items():
        setattr(device, name, property(_answer(shown, name, answer)))
    device.memory_stats = lambda self: shown.memory() if shown.has(self) else None
    text = _answer(shown, "__repr__", lambda self: _text(shown.layout, self))
    device.__repr__ = device.__str__ = text
    client: Any = _jax.Client
    client.local_devices = lambda self: [item for item in self.devices() if not item.process_index]
    client.local_device_count = lambda self: len(self.local_devices())
    _let_meshes_ask(shown)
    _SHOWN[:] = [shown]
    return shown


def assumed() -> dict[str, int]:
    """The assumptions about the cluster for the program, text -> count."""
    return _ASSUMED | {text: count for shown in _SHOWN for text, count in shown.assumed.items()}


def assume(*texts: str) -> None:
    """Tell of assumptions that were made before there is a cluster."""
    _ASSUMED.update(dict.fromkeys(texts, 1))


def shown_layout() -> Layout:
    """The cluster that devices are shown as; the cluster without devices if there is none."""
    return _SHOWN[0].layout if _SHOWN else Layout(devices=1)


def _answers(shown: Shown) -> dict[str, Callable[[Any], Any]]:
    """Attributes of a device, by the device."""
    found: dict[str, Callable[[Any], Any]] = {
        "process_index": lambda self: shown.layout.host_of(self.id),
        "host_id": lambda self: shown.layout.host_of(self.id),
        "task_id": lambda self: shown.layout.host_of(self.id),
        "slice_index": lambda self: shown.layout.slice_of(self.id),
        "local_hardware_id": lambda self: self.id % shown.layout.per_host,
    }
    layout = shown.layout
    found |= {"platform": lambda self: layout.platform, "device_kind": lambda self: layout.kind}
    if layout.platform == "tpu":
        found |= {
            "coords": lambda self: shown.layout.coords_of(self.id),
            "core_on_chip": lambda self: shown.layout.core_of(self.id),
            "num_cores": lambda self: 1,
        }
    if layout.capability is not None:
        capability = ".".join(map(str, layout.capability))
        found |= {
            "compute_capability": lambda self: capability,
            "core_count": lambda self: layout.multiprocessors,
            "device_vendor": lambda self: "NVIDIA Corporation",
        }
    return found


def _answer(shown: Shown, name: str, answer: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """An attribute of a device: the cluster's, or of the host's own processor as it was."""
    from jaxlib import _jax

    own = _OWN.setdefault(name, getattr(_jax.Device, name, None))

    def of(device: Any) -> Any:
        if shown.has(device):
            return answer(device)
        if own is None:
            raise AttributeError(name)
        found = own.__get__(device)
        return found() if name.startswith("__") else found

    return of


def _text(layout: Layout, device: Any) -> str:
    name = f"{_NAMES[layout.platform]}Device"
    if layout.platform != "tpu":
        return f"{name}(id={device.id})"
    return (
        f"{name}(id={device.id}, process_index={device.process_index}, coords={device.coords}, "
        f"core_on_chip={device.core_on_chip})"
    )


def _let_meshes_ask(shown: Shown) -> None:
    """Take the number of slices from meshes over several slices."""
    from jax._src import mesh_utils

    module: Any = mesh_utils
    build = module.create_hybrid_device_mesh

    @functools.wraps(build)
    def asking(mesh_shape: Any, dcn_mesh_shape: Any, *args: Any, **known: Any) -> Any:
        if not known.get("process_is_granule"):
            shown.ask_for_slices(math.prod(map(int, dcn_mesh_shape)))
        return build(mesh_shape, dcn_mesh_shape, *args, **known)

    module.create_hybrid_device_mesh = asking
