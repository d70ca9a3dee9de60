"""The short names of operating systems in upstream's instance types, of those that Nodes run on."""

UNKNOWN = "unknown"
_ITSELF = """
asianux3 asianux4 asianux5 asianux7 centos centos6 centos64 centos7 debian10 debian6 debian7 debian8
debian9 fedora freebsd opensuse oracleLinux oracleLinux6 oracleLinux7 other rhel6 rhel7 sles sles11
sles12 sles64 suse ubuntu
"""
_OTHERS = {
    "coreos64": "coreos",
    "fedora64": "fedora",
    "freebsd64": "freebsd",
    "genericLinux": "linux",
    "opensuse64": "opensuse",
    "oracleLinux64": "oracleLinux",
    "other24xLinux": "linux",
    "other24xLinux64": "linux",
    "other26xLinux": "linux",
    "other26xLinux64": "linux",
    "other3xLinux": "linux",
    "other3xLinux64": "linux",
    "otherGuest64": "other",
    "otherLinux": "linux",
    "otherLinux64": "linux",
    "redhat": "rhel",
    "suse64": "suse",
    "ubuntu64": "ubuntu",
    "vmwarePhoton64": "photon",
    "windows7Server64": "win7server",
    "windows8Server64": "win8server",
    "windows9Server64": "win10server",
}


def guest_os(guest_id: str) -> str:
    """The name for vCenter's identifier of a guest; it ends with its first releases of each."""
    base = guest_id.removesuffix("Guest")
    plain = base.removesuffix("_64")
    return plain if plain in _ITSELF.split() else _OTHERS.get(base, UNKNOWN)
