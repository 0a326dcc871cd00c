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
    """The server's configuration is wrong; the message has file, line and key."""

    code = "CONFIG_INVALID"


class InvalidArgument(Error, ValueError):
    """A call's argument is wrong."""

    code = "INVALID_ARGUMENT"


class EnvironmentFailed(Error):
    """A problem of the machine: a missing permission or device, a full disk."""

    code = "ENVIRONMENT"


class NotEnoughMemory(Error, MemoryError):
    """The ring, or a dataset in GPU memory, needs more memory than is free."""

    code = "NOT_ENOUGH_MEMORY"


class DirectoryInUse(Error):
    """Another server uses this directory."""

    code = "DIRECTORY_IN_USE"


class DatasetInvalid(Error):
    """The dataset cannot be read, or changed while it was in use."""

    code = "DATASET_INVALID"
    helps: tuple[str, ...] = ()  # arguments with which packing would go on: "columns", "on_error"


class TooManyBadSamples(Error):
    """More than `max_bad` of the stream's distinct samples are bad; the message names the first ten."""

    code = "TOO_MANY_BAD_SAMPLES"


class StreamFailed(Error):
    """The stream stopped; the message has the reason."""

    code = "STREAM_FAILED"


class ServerUnreachable(Error, ConnectionError):
    """No server answered within the timeout; the message says which step failed."""

    code = "SERVER_UNREACHABLE"


class VersionMismatch(Error):
    """The client's version and the server's do not fit together."""

    code = "VERSION_MISMATCH"


class NoSuchStream(Error, LookupError):
    """The server has no stream of this name; the message lists its streams."""

    code = "NO_SUCH_STREAM"


class ClientNameTaken(Error):
    """Another client of the stream has this name."""

    code = "CLIENT_NAME_TAKEN"


class RankTaken(Error):
    """Another client has this rank of the group; the message names it."""

    code = "RANK_TAKEN"


class GroupMismatch(Error):
    """The ranks of a group differ in world size or start."""

    code = "GROUP_MISMATCH"


class FingerprintMismatch(Error):
    """The dataset, plan, seed, algorithm version or batching is not that of the checkpoint; the message says which."""

    code = "FINGERPRINT_MISMATCH"


class RingFull(Error):
    """The stream has as many clients as `ring.max_clients` allows."""

    code = "RING_FULL"


class PermissionDenied(Error, PermissionError):
    """The client does not trust the server's user, or the server does not admit the client's."""

    code = "PERMISSION_DENIED"


class BadMessage(Error):
    """A malformed or oversized message."""

    code = "BAD_MESSAGE"


class Draining(Error):
    """The server is shutting down."""

    code = "DRAINING"


class Timeout(Error, TimeoutError):
    """A wait reached its limit; the message says what it waited for."""

    code = "TIMEOUT"


class ServerLost(Error, ConnectionError):
    """The server exited or became unreachable, and did not return within `reconnect_timeout`."""

    code = "SERVER_LOST"


class LeaseFenced(Error):
    """This process was stopped for longer than `server.evict_after`; the next batch attaches again."""

    code = "LEASE_FENCED"


class ForkedError(Error):
    """A forked child used its parent's loader."""

    code = "FORKED"


class IteratorBusy(Error):
    """A second iterator or a second thread uses the loader."""

    code = "ITERATOR_BUSY"


class Closed(Error):
    """The object was closed."""

    code = "CLOSED"


_BY_CODE: dict[str, type[Error]] = {
    kind.code: kind for kind in list(globals().values()) if isinstance(kind, type) and issubclass(kind, Error)
}


def from_code(code: str, message: str) -> Error:
    """The exception for a code: its own class, or `Error` if it has none."""
    kind = _BY_CODE.get(code, Error)
    return kind(message, code)
