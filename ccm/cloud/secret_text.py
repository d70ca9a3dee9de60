"""A secret that stands in the configuration, or in a file that it names and may change."""

import re
from dataclasses import dataclass, field
from pathlib import Path

from ccm.cloud.config_file import read_bounded
from ccm.cloud.sections import Faults
from ccm.errors import Unauthenticated
from ccm.redaction import register_secrets

REMEDY = "write the credential into it, on one line"
TOKEN = re.compile(r"[!-~]+")
"""What can stand in a header: ASCII without spaces."""
PASSWORD = re.compile(r"[^\x00-\x1f\x7f]+")
"""One line."""


def read_secret(file: str | Path, form: re.Pattern[str] = TOKEN) -> str:
    """The secret in a file, without the line break at its end; registered, so that none shows it.

    Raises `ValueError` with the problem, which names no path: tenants may read it.
    """
    try:
        text = read_bounded(Path(file)).decode().strip("\r\n")
    except OSError as error:
        raise ValueError(f"cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError:
        raise ValueError("is not text") from None
    if form is not PASSWORD:
        text = text.strip()
    if not text:
        raise ValueError("is empty")
    if not form.fullmatch(text):
        spaces = "" if form is PASSWORD else " and spaces"
        raise ValueError(f"has another form than one line without control characters{spaces}")
    register_secrets(text)
    return text


@dataclass(frozen=True, slots=True)
class SecretText:
    """A text of the credentials: the `value` at a `key` of the configuration, or what `file` has.

    The key of the file is the other one with the `suffix`.
    """

    key: str
    value: str = field(default="", repr=False)
    file: str = ""
    form: re.Pattern[str] = TOKEN
    suffix: str = "-file"

    @property
    def name(self) -> str:
        """The key that is given."""
        return self.key + self.suffix if self.file else self.key

    @property
    def place(self) -> str:
        """Where an operator finds the text."""
        return f"{self.name} {self.file}".strip()

    def read(self) -> str:
        """The text now; raises `Unauthenticated`."""
        if not self.file:
            return self.value
        try:
            return read_secret(self.file, self.form)
        except ValueError as problem:
            message = f"{self.name}: the file {problem}; {REMEDY}"
            raise Unauthenticated(message, self.place) from problem

    def check(self, faults: Faults, remedy: str, section: str = "") -> None:
        """Record unless there is either the value, in this section, or a file that has one."""
        key = f"{section} {self.key}".strip()
        is_given, file_key = key in faults.origins, key + self.suffix
        if is_given and self.file:
            faults.add(key, "is given twice", remedy)
        elif not is_given and not self.file:
            faults.add(file_key, "is missing", remedy)
        elif self.file:
            try:
                read_secret(self.file, self.form)
            except ValueError as problem:
                faults.add(file_key, str(problem), REMEDY)
