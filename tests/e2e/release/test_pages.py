"""The commands that pages install with, as they stand there, on a host that has nothing of ours."""

import subprocess
from pathlib import Path

import pytest

from release.tree import ROOT, copy_tree
from tests.docs.pages import DOCS, Page
from tests.e2e.release.conftest import clean_variables
from tests.support.namespaces import ROOT as AS_ROOT
from tests.support.namespaces import why_no_namespaces
from tests.support.needed import needed
from tests.support.running import long

PAGES = (
    ROOT / "README.md",
    DOCS / "getting-started.md",
    DOCS / "install" / "README.md",
    DOCS / "systemd.md",
)
INSTALLS = (
    "python3 -m venv",
    "/opt/ccm-supervisor/bin/pip",
    "make packages",
    "make install-systemd\n",
)
OWN_OPT = 'mount -t tmpfs tmpfs /opt && exec sh -eux "$0"'


@long
@pytest.mark.timeout(900)  # several times pip
@pytest.mark.parametrize("page", PAGES, ids=[page.stem for page in PAGES])
def test_what_a_page_installs_with_can_be_run_as_it_stands_there(
    page: Path, tmp_path: Path
) -> None:
    missing = why_no_namespaces("make", "util-linux make python3-venv")
    needed(not missing, missing)
    lines = [f"{line.strip()}\n" for line in Page.read(page).code.splitlines()]
    script = "".join(line for line in lines if line.startswith(INSTALLS))
    script = script.replace("make install-systemd", f"make install-systemd DESTDIR={tmp_path}")
    version = "/opt/ccm-supervisor/bin/ccm-supervisor --version\n"
    (tmp_path / "script").write_text(script + version)
    done = subprocess.run(
        [*AS_ROOT, "unshare", "--mount", "sh", "-c", OWN_OPT, tmp_path / "script"],
        cwd=copy_tree(tmp_path / "source"), env=clean_variables(), capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "bin/pip install" in script
    assert "0.1.0" in done.stdout
