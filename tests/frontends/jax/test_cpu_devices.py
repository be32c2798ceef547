"""The topology that a client is given: decoded by an independent reader of protocol buffers."""

from __future__ import annotations

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from hypothesis import given
from hypothesis import strategies as st

from flint.frontends.jax.internals.cpu_devices import others

_INT, _STRING, _MESSAGE = 5, 9, 11  # FieldDescriptorProto.Type
_FIELDS = {
    "Device": [("local_device_ordinal", 1, _INT, None), ("global_device_id", 4, _INT, None)],
    "Process": [
        ("process_id", 1, _INT, None), ("boot_id", 2, _STRING, None),
        ("devices", 3, _MESSAGE, "Device"),
    ],
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


PROCESS = _message("Process")


@given(st.integers(min_value=1, max_value=16), st.integers(min_value=0, max_value=40_000))
def test_every_device_of_the_other_process_is_told_once(own, more):
    told = PROCESS.FromString(others(own, own + more))
    assert [device.global_device_id for device in told.devices] == list(range(own, own + more))
    assert [device.local_device_ordinal for device in told.devices] == list(range(more))
    assert told.process_id == 1


@pytest.mark.parametrize("devices", [2048, 2049, 2**14, 2**14 + 1, 2**20, 2**21 + 5])
def test_a_device_takes_few_bytes(devices):
    size = len(others(1, devices))
    assert 6 * (devices - 128) < size < 13 * devices + 64


def test_a_million_devices_are_told_exactly():
    told = PROCESS.FromString(others(1, 2**20))
    assert len(told.devices) == 2**20 - 1
    assert told.devices[-1].global_device_id == 2**20 - 1
