"""The image's root file system: Debian's Python, the pinned libraries of all clouds, the wheel.

Nothing is installed: packages are unpacked, and no program of them runs but Python's compiler.
"""

import shutil
from configparser import ConfigParser
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from zipfile import ZipFile

from ccm import __version__
from ccm.cli.manifests import IMAGE
from ccm.manifests.workload import USER
from release import debian
from release.debian import PLATFORMS, PYTHON
from release.oci import image_archive
from release.packages import make_packages
from release.sbom import bill_of_materials
from release.tree import NAME, REQUIREMENTS, UV, clouds, origin, run

SITE = "usr/lib/python3/dist-packages"
PINS = REQUIREMENTS / "all.txt"

UNUSED = (
    "usr/lib/*/gconv", "usr/lib/*/engines-3", "usr/sbin/*",
    "usr/share/[!cd]*", "usr/share/doc/*/[!c]*", "usr/share/doc/*/changelog*",
    f"usr/lib/python{PYTHON}/test", f"usr/lib/python{PYTHON}/pydoc_data",
    f"usr/lib/python{PYTHON}/lib-dynload/_test*",
    # Generated clients: we send and receive JSON. Descriptions of services: we use those of KEPT.
    f"{SITE}/kubernetes/client/api/*", f"{SITE}/kubernetes/client/models/*",
    f"{SITE}/kubernetes/aio/client/api/*", f"{SITE}/kubernetes/aio/client/models/*",
    f"{SITE}/botocore/data/*/",
)  # fmt: skip
KEPT = (
    f"{SITE}/botocore/data/ec2", f"{SITE}/botocore/data/elb", f"{SITE}/botocore/data/elbv2",
    f"{SITE}/botocore/data/sts", f"{SITE}/botocore/data/sso", f"{SITE}/botocore/data/sso-oidc",
)  # fmt: skip

LINKS = {
    "usr/bin/python3": f"python{PYTHON}",
    "usr/lib/ssl/cert.pem": "/etc/ssl/certs/ca-certificates.crt",
    # Where manifests of upstream's controllers look for it; some give arguments alone.
    **{
        f"usr/bin/{cloud}-cloud-controller-manager": "../local/bin/cloud-controller-manager"
        for cloud in clouds()
    },
}
FILES = {
    "etc/passwd": f"root:x:0:0:root:/:\nccm:x:{USER}:{USER}:ccm:/:\n",
    "etc/group": f"root:x:0:\nccm:x:{USER}:\n",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
}
CONFIG: dict[str, Any] = {
    "User": f"{USER}:{USER}",
    "Env": ["PATH=/usr/local/bin:/usr/bin:/bin", "LANG=C.UTF-8"],
    "Entrypoint": ["cloud-controller-manager"],
    "WorkingDir": "/",
    "Labels": {
        "org.opencontainers.image.title": NAME,
        "org.opencontainers.image.version": __version__,
        "org.opencontainers.image.licenses": "Apache-2.0",
    },
}
# Workers import it as well, and must not start it.
SCRIPT = """#!/usr/bin/python3
import sys
from {module} import {function}

if __name__ == "__main__":
    sys.exit({function}())
"""


def make_image(out: Path, architecture: str = "") -> tuple[Path, Path]:
    """The archive of the image, and its bill of materials; by default for this host."""
    architecture = architecture or debian.host_architecture()
    with TemporaryDirectory() as directory:
        root, work = Path(directory, "root"), Path(directory, "work")
        _, wheel = make_packages(out)
        make_root(root, wheel, work, architecture)
        config = {**CONFIG, "Labels": CONFIG["Labels"] | origin()}
        digest, archive = image_archive(root, architecture, config, IMAGE)
        bill = bill_of_materials(digest, architecture, debian.pinned(architecture), root, SITE)
    name = f"{NAME}-{__version__}-{architecture}"
    made = out / f"{name}.oci.tar", out / f"{name}.cdx.json"
    for path, content in zip(made, (archive, bill), strict=True):
        path.write_bytes(content)
    return made


def make_root(root: Path, wheel: Path, work: Path, architecture: str) -> None:
    """Fill the directory `root`; `work` is for what is needed on the way."""
    for package in debian.download(debian.pinned(architecture), work / architecture, architecture):
        run("dpkg-deb", "--extract", package, root)
        _register(package, root)
    _install(root / SITE, wheel, architecture)
    _leave_out(root)
    for name, target in LINKS.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).symlink_to(target)
    authorities = sorted((root / "usr/share/ca-certificates").rglob("*.crt"))
    bundle = "".join(path.read_text() for path in authorities)
    for name, text in {**FILES, "etc/ssl/certs/ca-certificates.crt": bundle}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    _add_commands(root, wheel)
    _compile(root, work)


def _register(package: Path, root: Path) -> None:
    """Say that it is there, in the place where scanners look in images without dpkg."""
    status = root / "var/lib/dpkg/status.d"
    status.mkdir(parents=True, exist_ok=True)
    (status / package.name.partition("_")[0]).write_text(run("dpkg-deb", "--field", package))


def _install(site: Path, wheel: Path, architecture: str) -> None:
    platform = (
        f"--python-platform={PLATFORMS[architecture]}-manylinux_2_28",
        f"--python-version={PYTHON}",
    )
    install = (UV, "pip", "install", "--quiet", f"--target={site}", *platform)
    run(*install, "--only-binary=:all:", "--link-mode=copy", "--require-hashes", f"-r{PINS}")
    shutil.rmtree(site / "bin")  # they name this host's Python
    for record in site.glob("*.dist-info/RECORD"):
        lines = record.read_text().splitlines(keepends=True)
        record.write_text("".join(line for line in lines if not line.startswith("bin/")))
    with ZipFile(wheel) as archive:
        archive.extractall(site)


def _leave_out(root: Path) -> None:
    kept = {root / name for name in KEPT}
    for pattern in UNUSED:
        for path in [*root.glob(pattern)]:
            is_folder = path.is_dir() and not path.is_symlink()
            if path in kept or (pattern.endswith("/") and not is_folder):
                continue
            shutil.rmtree(path) if is_folder else path.unlink(missing_ok=True)


def _add_commands(root: Path, wheel: Path) -> None:
    points = ConfigParser()
    with ZipFile(wheel) as archive:
        (name,) = (one for one in archive.namelist() if one.endswith("entry_points.txt"))
        points.read_string(archive.read(name).decode())
    for command, where in points["console_scripts"].items():
        module, _, function = where.partition(":")
        path = root / "usr/local/bin" / command
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(SCRIPT.format(module=module, function=function))
        path.chmod(0o755)


def _compile(root: Path, work: Path) -> None:
    """Bytecode for all of it, as nothing can write it later; it is the same for each architecture.

    The image's version of Python makes it, of this host's architecture.
    """
    host, tools = debian.host_architecture(), work / "tools"
    for package in debian.download(debian.pinned(host), work / host, host):
        run("dpkg-deb", "--extract", package, tools)
    (loader,) = (tools / "usr/lib").glob("*/ld-linux-*")
    python = (loader, "--library-path", loader.parent, tools / f"usr/bin/python{PYTHON}")
    compiler = ("-m", "compileall", "-qq", "--invalidation-mode=unchecked-hash")
    places = ("-s", root, "-p", "/", root / "usr/lib/python3", root / f"usr/lib/python{PYTHON}")
    variables = {"PYTHONHOME": str(tools / "usr"), "PYTHONHASHSEED": "0", "PYTHONPATH": ""}
    run(*python, *compiler, *places, **variables)
