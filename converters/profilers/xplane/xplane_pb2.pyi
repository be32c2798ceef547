from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class XSpace(_message.Message):
    __slots__ = ("planes",)
    PLANES_FIELD_NUMBER: _ClassVar[int]
    planes: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, planes: _Optional[_Iterable[bytes]] = ...) -> None: ...

class XPlaneName(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: bytes
    def __init__(self, name: _Optional[bytes] = ...) -> None: ...

class XPlane(_message.Message):
    __slots__ = ("event_metadata",)
    class EventMetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: XEventMetadata
        def __init__(self, key: _Optional[int] = ..., value: _Optional[_Union[XEventMetadata, _Mapping]] = ...) -> None: ...
    EVENT_METADATA_FIELD_NUMBER: _ClassVar[int]
    event_metadata: _containers.MessageMap[int, XEventMetadata]
    def __init__(self, event_metadata: _Optional[_Mapping[int, XEventMetadata]] = ...) -> None: ...

class XEventMetadata(_message.Message):
    __slots__ = ("name", "stats")
    NAME_FIELD_NUMBER: _ClassVar[int]
    STATS_FIELD_NUMBER: _ClassVar[int]
    name: bytes
    stats: _containers.RepeatedCompositeFieldContainer[XStat]
    def __init__(self, name: _Optional[bytes] = ..., stats: _Optional[_Iterable[_Union[XStat, _Mapping]]] = ...) -> None: ...

class XStat(_message.Message):
    __slots__ = ("bytes_value",)
    BYTES_VALUE_FIELD_NUMBER: _ClassVar[int]
    bytes_value: bytes
    def __init__(self, bytes_value: _Optional[bytes] = ...) -> None: ...
