"""What an engine is, and the errors that a client of the server sees; both work across processes.

An engine computes answers somewhere else than on the event loop: in a thread (`local.py`) or in other processes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from pairre.support.errors import PairREError


class ServeError(PairREError):
    """An answer that is refused or cannot be given now: the status of HTTP, a code for programs, and names to try."""

    status, code = 400, "bad_request"

    def __init__(self, message: str, suggestions: Sequence[str] = (), retry_after: float | None = None) -> None:
        super().__init__(message)
        self.suggestions, self.retry_after = list(suggestions), retry_after

    def to_values(self) -> dict[str, Any]:
        """Return plain values, from which `error_of_values` makes the same error in another process."""
        return {
            "code": self.code,
            "message": str(self),
            "suggestions": self.suggestions,
            "retry_after": self.retry_after,
        }


class UnknownNameError(ServeError):
    """No run, entity, relation or type has the name that a client gave, or several have."""

    status, code = 404, "unknown_name"


class OverLimitError(ServeError):
    """A client wants more than the server gives in one request."""

    status, code = 422, "over_limit"


class NotPreparedError(ServeError):
    """Something that is computed in the background is not there yet."""

    status, code = 503, "preparing"


class EngineBusyError(ServeError):
    """More is asked than can be computed now."""

    status, code = 503, "busy"


class EngineLostError(ServeError):
    """The process that computed the answer ended; it is started again."""

    status, code = 503, "restarting"


_BY_CODE: dict[str, type[ServeError]] = {
    kind.code: kind
    for kind in (ServeError, UnknownNameError, OverLimitError, NotPreparedError, EngineBusyError, EngineLostError)
}


def within(what: str, value: int, most: int) -> None:
    """Raise an OverLimitError unless a number is at least 1 and at most the limit."""
    if not 1 <= value <= most:
        raise OverLimitError(f"{what} {value:,}: a number from 1 to {most:,} expected")


def error_of_values(values: dict[str, Any]) -> ServeError:
    """Return the error that `to_values` described."""
    return _BY_CODE[values["code"]](values["message"], values["suggestions"], values["retry_after"])


def as_serve_error(error: PairREError) -> ServeError:
    """Return an error of the package as one that a client sees."""
    return error if isinstance(error, ServeError) else ServeError(str(error))


def unknown_run(name: str, names: Sequence[str]) -> UnknownNameError:
    """Return the error that no run has a name."""
    return UnknownNameError(f"no run is named {name[:80]!a}", names)


class Engine(Protocol):
    """Computes answers off the event loop; each is a function of `answers.FUNCTIONS` of a run by its name."""

    async def start(self) -> None:
        """Open the runs; nothing is called before that."""

    async def stop(self) -> None:
        """Finish what is being computed and let go of everything."""

    def ready(self) -> bool:
        """Return whether calls are answered now."""

    def numbers(self) -> dict[str, int]:
        """Return counts for the metrics of the server."""

    async def call(self, run: str, function: str, arguments: dict[str, Any]) -> Any:
        """Return the answer of a function, as plain values; a ServeError says why there is none."""

    async def call_json(self, run: str, function: str, arguments: dict[str, Any]) -> bytes:
        """Return the answer of a function as JSON, which a server need not read to pass it on."""
