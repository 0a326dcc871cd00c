"""Errors: `headrace.Error` with a `.code`, and a subclass for each code that a program may want to catch."""

from __future__ import annotations


class Error(Exception):
    """Any failure of Headrace. `code` has the same name in C++, on the wire and in Python; `str()` is "CODE: message"."""

    code = "INTERNAL"

    def __init__(self, message: str, code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        if code is not None:
            self.code = code

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.message, self.code)


class ConfigInvalid(Error, ValueError):
    code = "CONFIG_INVALID"


class InvalidArgument(Error, ValueError):
    code = "INVALID_ARGUMENT"


class EnvironmentFailed(Error):
    """A problem of the machine: a missing permission, device or file."""

    code = "ENVIRONMENT"


class NotEnoughMemory(Error, MemoryError):
    code = "NOT_ENOUGH_MEMORY"


class DirectoryInUse(Error):
    code = "DIRECTORY_IN_USE"


class DatasetInvalid(Error):
    code = "DATASET_INVALID"


class TooManyBadSamples(Error):
    code = "TOO_MANY_BAD_SAMPLES"


class StreamFailed(Error):
    code = "STREAM_FAILED"


class ServerUnreachable(Error, ConnectionError):
    code = "SERVER_UNREACHABLE"


class VersionMismatch(Error):
    code = "VERSION_MISMATCH"


class NoSuchStream(Error, LookupError):
    code = "NO_SUCH_STREAM"


class ClientNameTaken(Error):
    code = "CLIENT_NAME_TAKEN"


class RankTaken(Error):
    code = "RANK_TAKEN"


class GroupMismatch(Error):
    code = "GROUP_MISMATCH"


class FingerprintMismatch(Error):
    code = "FINGERPRINT_MISMATCH"


class RingFull(Error):
    code = "RING_FULL"


class PermissionDenied(Error, PermissionError):
    code = "PERMISSION_DENIED"


class BadMessage(Error):
    code = "BAD_MESSAGE"


class Draining(Error):
    code = "DRAINING"


class Timeout(Error, TimeoutError):
    code = "TIMEOUT"


class ServerLost(Error, ConnectionError):
    code = "SERVER_LOST"


class LeaseFenced(Error):
    code = "LEASE_FENCED"


class ForkedError(Error):
    code = "FORKED"


class IteratorBusy(Error):
    code = "ITERATOR_BUSY"


class Closed(Error):
    code = "CLOSED"


_BY_CODE: dict[str, type[Error]] = {
    kind.code: kind for kind in list(globals().values()) if isinstance(kind, type) and issubclass(kind, Error)
}


def from_code(code: str, message: str) -> Error:
    """The exception for a code: its own class, or `Error` if it has none."""
    kind = _BY_CODE.get(code, Error)
    return kind(message, code)
