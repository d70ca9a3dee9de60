"""Files that a cloud-config names: why one cannot be had, and whom a client believes by it."""

import os
import ssl
from pathlib import Path

import pytest
from fakepve.certs import make_cert

from ccm.cloud.config_file import why_no_certificate, why_unreadable
from ccm.cloud.failures import what_broke


def test_a_file_that_can_be_read_is_no_fault(tmp_path: Path) -> None:
    certificate, _, _ = make_cert(str(tmp_path), "host")
    assert why_unreadable(certificate) == ""
    assert why_no_certificate(certificate) == ""
    bundle = tmp_path / "bundle.pem"
    bundle.write_text(f"# Bundles say whose each is.\n{Path(certificate).read_text() * 2}")
    assert why_no_certificate(str(bundle)) == ""


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("nowhere", "cannot be read: No such file or directory"),
        ("", "is not a regular file"),
        ("file/below", "cannot be read: Not a directory"),
        ("zero\0", "cannot be read: its name has a null character"),
    ],
)
def test_what_is_wrong_is_reported(tmp_path: Path, name: str, words: str) -> None:
    (tmp_path / "file").touch()
    assert why_unreadable(f"{tmp_path}/{name}") == words
    assert words in why_no_certificate(f"{tmp_path}/{name}")


def test_a_directory_of_another_owner_is_reported_and_is_no_bug(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(path: object) -> None:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(os, "stat", denied)
    assert why_unreadable("/root/ca.pem") == "cannot be read: Permission denied"


@pytest.mark.parametrize("content", ["a password by mistake", ""])
def test_a_file_without_a_certificate_is_reported(tmp_path: Path, content: str) -> None:
    file = tmp_path / "ca.pem"
    file.write_text(content)
    assert why_no_certificate(str(file)) == f"is {str(file)!r}, which holds no certificate in PEM"


def test_a_certificate_that_is_not_trusted_names_the_key() -> None:
    wrong = ssl.SSLCertVerificationError()
    wrong.verify_message = "self-signed certificate"
    reported = what_broke(wrong, "ca-file")
    assert reported.startswith("the certificate is not trusted: self-signed certificate")
    assert "ca-file" in reported
    assert what_broke(OSError("gone"), "ca-file") == "OSError: gone"
