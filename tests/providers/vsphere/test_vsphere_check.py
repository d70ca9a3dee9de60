"""What `ccm-supervisor check` says of a login."""

from pathlib import Path
from typing import Any

import pytest

from tests.labs.vsphere.lab import LABELS, Lab
from tests.providers.started import checked
from tests.providers.vsphere.test_vsphere_gone import IS_GRANTED


@pytest.mark.parametrize(
    ("given", "rights", "state", "words"),
    [
        ({}, True, "ok", "the cloud answers about instances"),
        ({}, False, "warning", "lab: System.Read on the root folder, propagated"),
        ({"datacenters": ["DC1"]}, False, "warning", "lab: System.Read on datacenter DC1"),
        ({"datacenters": ["DC0", "DC9"]}, True, "warning", "lab: datacenter DC9 is not there"),
        ({"password": "wrong"}, True, "failed", "lab: Login: "),
        ({"caFile": None}, True, "failed", "the certificate is not trusted"),
        (
            {"secretName": "s", "secretNamespace": "n"},
            True,
            "failed",
            "Secret n/s cannot be read from here",
        ),
    ],
)
async def test_it_names_what_is_missing(
    lab: Lab, tmp_path: Path, given: dict[str, Any], rights: bool, state: str, words: str
) -> None:
    """VS21, VS28, VS30: rights are an answer of ours, as the simulator has none."""
    if not rights:
        lab.edit("HasPrivilege", IS_GRANTED)
    (found,) = await checked("vsphere", lab.config(LABELS, **given), tmp_path)
    assert (found.state, words in found.message) == (state, True), found
