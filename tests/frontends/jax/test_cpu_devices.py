"""The topology that a client is told: decoded by a reader of protocol buffers that is not ours."""

from __future__ import annotations

import numpy as np
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from hypothesis import given
from hypothesis import strategies as st

from flint.frontends.jax.internals.cpu_devices import OWN_DEVICE, device_numbers, topology

_INT, _STRING, _MESSAGE = 5, 9, 11  # FieldDescriptorProto.Type
_FIELDS = {
    "Device": [("local_device_ordinal", 1, _INT, None), ("global_device_id", 4, _INT, None)],
    "Process": [
        ("process_id", 1, _INT, None), ("boot_id", 2, _STRING, None),
        ("devices", 3, _MESSAGE, "Device"),
    ],
    "Topology": [("processes", 1, _MESSAGE, "Process")],
}  # fmt: skip


def _message(name):
    file = descriptor_pb2.FileDescriptorProto(name="topology.proto", package="t", syntax="proto3")
    for message, fields in _FIELDS.items():
        made = file.message_type.add(name=message)
        for field, number, kind, of in fields:
            repeated = 3 if of else 1
            added = made.field.add(name=field, number=number, type=kind, label=repeated)
            if of:
                added.type_name = f".t.{of}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"t.{name}"))


TOPOLOGY = _message("Topology")


@given(st.integers(min_value=1, max_value=40_000))
def test_every_device_is_told_once_and_one_is_own(devices):
    numbers = device_numbers(devices)
    others, own = TOPOLOGY.FromString(topology(numbers)).processes
    assert [device.global_device_id for device in own.devices] == [OWN_DEVICE]
    told = [device.global_device_id for device in others.devices]
    assert sorted([*told, OWN_DEVICE]) == numbers.tolist()
    assert [device.local_device_ordinal for device in others.devices] == list(range(devices - 1))
    assert (own.process_id, others.process_id) == (1, 0)
    assert own.boot_id != others.boot_id


@pytest.mark.parametrize("devices", [2048, 2049, 2**14, 2**14 + 1, 2**20, 2**21 + 5])
def test_numbers_are_ascending_and_as_many_as_devices(devices):
    numbers = device_numbers(devices)
    assert len(numbers) == devices
    assert np.all(np.diff(numbers) > 0)
    assert OWN_DEVICE in numbers
    size = len(topology(numbers))
    assert 6 * (devices - 128) < size < 13 * devices + 64


def test_a_million_devices_are_told_exactly():
    numbers = device_numbers(2**20)
    others, _ = TOPOLOGY.FromString(topology(numbers)).processes
    assert len(others.devices) == 2**20 - 1
    assert others.devices[-1].global_device_id == 2**20 - 1
