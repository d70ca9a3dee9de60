"""The one way an operation of the simulated cloud says no."""

from collections.abc import Mapping


class Problem(Exception):
    """An answer that is not a success: an HTTP status, the cloud's own code, and a sentence."""

    def __init__(
        self, status: int, code: str, message: str, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.code, self.message = status, code, message
        self.headers = dict(headers or {})

    def body(self) -> dict[str, dict[str, str]]:
        return {"error": {"code": self.code, "message": self.message}}


def invalid(message: str) -> Problem:
    """The request itself is wrong."""
    return Problem(400, "InvalidRequest", message)


def missing(what: str) -> Problem:
    """The thing named in the path is not there."""
    return Problem(404, "NotFound", f"{what} does not exist")
