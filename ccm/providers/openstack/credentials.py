"""`[Global]` of the configuration, and the clouds.yaml that it may point to."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ccm.cloud.config_file import one_of, yaml_boolean
from ccm.cloud.sections import fault_in, setting
from ccm.cloud.yaml_file import YamlReader
from ccm.directories import check_trusted, read_bounded
from ccm.errors import ConfigurationFaults
from ccm.model.objects import mapping, text
from ccm.redaction import register_hidden

CLOUDS_DIRECTORIES = (".", "~/.config/openstack", "/etc/openstack")
SECURE_FILE = "secure.yaml"  # beside clouds.yaml, merged over it
CLOUD_KEYS = {
    "region_name": "region", "interface": "os_endpoint_type", "endpoint_type": "os_endpoint_type",
    "cacert": "ca_file", "cert": "cert_file", "key": "key_file",
}  # fmt: skip
AUTH_KEYS = {
    "project_id": "tenant_id", "project_name": "tenant_name", "tenant_id": "tenant_id",
    "tenant_name": "tenant_name", "project_domain_id": "tenant_domain_id",
    "project_domain_name": "tenant_domain_name",
    **{
        name: name
        for name in (
            "auth_url", "username", "user_id", "password", "domain_id", "domain_name",
            "user_domain_id", "user_domain_name", "application_credential_id",
            "application_credential_name", "application_credential_secret", "trust_id", "token",
        )
    },
}  # fmt: skip


INTERFACES = ("public", "internal", "admin")


def _interface(value: str) -> str:
    """Keystone's word for a kind of endpoint, which older files write with `URL` behind it."""
    return one_of(INTERFACES)(value.removesuffix("URL"))


@dataclass(frozen=True, slots=True)
class GlobalSection:
    """`[Global]`: where Keystone is and who we are; a key is a field, with dashes."""

    auth_url: str = ""
    username: str = ""
    user_id: str = ""
    password: str = setting("", is_secret=True)
    tenant_id: str = ""
    tenant_name: str = ""
    domain_id: str = ""
    domain_name: str = ""
    user_domain_id: str = ""
    user_domain_name: str = ""
    tenant_domain_id: str = ""
    tenant_domain_name: str = ""
    application_credential_id: str = ""
    application_credential_name: str = ""
    application_credential_secret: str = setting("", is_secret=True)
    trust_id: str = ""
    trustee_id: str = ""
    trustee_password: str = setting("", is_secret=True)
    token: str = setting("", is_secret=True)
    region: str = ""
    os_endpoint_type: str = setting("public", (_interface, f"use {', '.join(INTERFACES)}"))
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    tls_insecure: bool = False
    use_clouds: bool = False
    clouds_file: str = ""
    cloud: str = ""

    def __post_init__(self) -> None:
        register_hidden(self)


def user_domain(known: GlobalSection) -> dict[str, str]:
    """The domain of the user, as Keystone takes it; empty when none is configured."""
    return _by_id_or_name(
        known.user_domain_id or ("" if known.user_domain_name else known.domain_id),
        known.user_domain_name or known.domain_name,
    )


def project_domain(known: GlobalSection) -> dict[str, str]:
    """The domain of the project."""
    return _by_id_or_name(
        known.tenant_domain_id or ("" if known.tenant_domain_name else known.domain_id),
        known.tenant_domain_name or known.domain_name,
    )


def _by_id_or_name(id: str, name: str) -> dict[str, str]:  # noqa: A002 - Keystone's word
    return {"id": id} if id else {"name": name} if name else {}


def with_clouds(known: GlobalSection, path: str) -> GlobalSection:
    """What `known` leaves empty is taken from its cloud in clouds.yaml."""
    named = known.clouds_file or os.environ.get("OS_CLIENT_CONFIG_FILE", "")
    file = _clouds_file(named)
    if file is None:
        where = named or ", ".join(CLOUDS_DIRECTORIES)
        fault = fault_in(path, "[Global] use-clouds", f"no clouds.yaml in {where}", "make one")
        raise ConfigurationFaults([fault])
    if not named:
        _check_found(file, path)
    clouds, secrets = (_clouds_in(item) for item in (file, file.with_name(SECURE_FILE)))
    name = known.cloud or os.environ.get("OS_CLOUD", "") or (next(iter(clouds), ""))
    if name not in clouds or (len(clouds) > 1 and not (known.cloud or os.environ.get("OS_CLOUD"))):
        choice = f"give one of {', '.join(clouds) or 'none that is there'}"
        fault = fault_in(path, "[Global] cloud", f"{name!r} is not chosen or not there", choice)
        raise ConfigurationFaults([fault])
    return merge_cloud(known, _merged(clouds[name], secrets.get(name)))


def merge_cloud(known: GlobalSection, cloud: Mapping[str, Any]) -> GlobalSection:
    """`known`, and for what is empty in it the entry of one cloud."""
    found = _renamed(cloud, CLOUD_KEYS) | _renamed(mapping(cloud.get("auth")), AUTH_KEYS)
    if _is(cloud, "insecure") or not _is(cloud, "verify", default=True):
        found["tls_insecure"] = True
    if "os_endpoint_type" in found:
        found["os_endpoint_type"] = str(found["os_endpoint_type"]).removesuffix("URL")
    default = GlobalSection()
    empty = {name for name in found if getattr(known, name) == getattr(default, name)}
    return replace(known, **{name: value for name, value in found.items() if name in empty})


def _clouds_file(named: str) -> Path | None:
    """The file that is named, else the first where one may be."""
    places = [named] if named else [f"{where}/clouds.yaml" for where in CLOUDS_DIRECTORIES]
    files = (Path(os.path.expanduser(place)) for place in places)  # also of users without a home
    return next((file for file in files if file.is_file()), None)


def _check_found(file: Path, path: str) -> None:
    """A file that is found, as in the working directory, decides which cloud is ours."""
    try:
        check_trusted(file)
    except OSError as error:
        problem = f"{file.absolute()} is not used: {error.strerror}"
        remedy = "name the file that is meant with clouds-file"
        fault = fault_in(path, "[Global] use-clouds", problem, remedy)
        raise ConfigurationFaults([fault]) from None


def _is(cloud: Mapping[str, Any], key: str, *, default: bool = False) -> bool:
    """A switch of a cloud; an invalid value has no effect."""
    try:
        return yaml_boolean(text(cloud.get(key)))
    except ValueError:
        return default


def _clouds_in(file: Path) -> Mapping[str, Any]:
    if not file.is_file():
        return {}
    reader = YamlReader(str(file))
    try:
        root = reader.parse(read_bounded(file), "clouds")
    except OSError as error:
        problem = f"cannot be read: {error.strerror}"
        fault = fault_in(str(file), "", problem, "let this user read it")
        raise ConfigurationFaults([fault]) from None
    clouds = reader.mapping(root, "clouds")
    reader.faults.check()
    return clouds


def _merged(below: Any, above: Any) -> dict[str, Any]:
    """Two entries of one cloud; `above` wins, and `auth` is merged key by key."""
    item, other = mapping(below), mapping(above)
    return {**item, **other, "auth": {**mapping(item.get("auth")), **mapping(other.get("auth"))}}


def _renamed(values: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    return {names[key]: text(value) for key, value in values.items() if key in names and value}
