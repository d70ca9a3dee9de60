"""The file of a leader migration, and which lease a controller of ours runs under."""

from pathlib import Path

import pytest

from ccm.controllers import (
    KNOWN,
    LIFECYCLE,
    NODE,
    ROUTE,
    SERVICE,
    VOLUME,
    enabled_provided,
    is_enabled,
)
from ccm.errors import ConfigurationFaults
from ccm.settings import Settings
from ccm.settings.leader_migration import DEFAULT, LeaderMigration, read_leader_migration

HEAD = "kind: LeaderMigrationConfiguration\napiVersion: controllermanager.config.k8s.io/"
V1 = f"{HEAD}v1\nleaderName: second\n"
BETA = f"{HEAD}v1beta1\nleaderName: second\nresourceLock: leases\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "migration.yaml"


def migrating(file: Path | str = "", **more: str) -> Settings:
    return Settings(enable_leader_migration=True, leader_migration_config=str(file), **more)  # type: ignore[arg-type]


def reported(settings: Settings) -> list[str]:
    with pytest.raises(ConfigurationFaults) as found:
        read_leader_migration(settings)
    assert {fault.field for fault in found.value.faults} == {"--leader-migration-config"}
    return [f"{fault.problem}; {fault.remedy}" for fault in found.value.faults]


def test_by_default_nothing_migrates() -> None:
    assert read_leader_migration(Settings()) is None


def test_without_an_election_nothing_migrates() -> None:
    assert read_leader_migration(Settings(enable_leader_migration=True, leader_elect=False)) is None


def test_without_a_file_only_the_lifecycle_controller_migrates() -> None:
    migration = read_leader_migration(migrating())
    assert migration == DEFAULT
    assert migration.lease_name == "cloud-provider-extraction-migration"
    assert {name for name in KNOWN if migration.lease_role(name) == "migration"} == {LIFECYCLE}
    assert {migration.lease_role(name) for name in KNOWN} == {"main", "migration"}


@pytest.mark.parametrize(
    "head",
    [V1, BETA, BETA.replace("v1beta1", "v1alpha1")],
    ids=["v1", "v1beta1", "v1alpha1"],
)
def test_each_version_of_the_file_is_read(file: Path, head: str) -> None:
    file.write_text(
        f"{head}controllerLeaders:\n"
        f"- {{name: {SERVICE}, component: '*'}}\n"
        f"- {{name: {ROUTE}, component: cloud-controller-manager}}\n"
        f"- {{name: {NODE}, component: kube-controller-manager}}\n"
        "- {name: stranger, component: '*'}\n"
    )
    migration = read_leader_migration(migrating(file))
    assert migration is not None
    assert migration.lease_name == "second"
    assert {name: migration.lease_role(name) for name in KNOWN} == {
        SERVICE: "migration",
        ROUTE: "migration",
        NODE: None,
        LIFECYCLE: "main",
        VOLUME: "main",
    }


def test_a_controller_that_runs_elsewhere_is_turned_off_whatever_the_flag_says() -> None:
    migration = LeaderMigration("second", ((ROUTE, "kube-controller-manager"), (SERVICE, "*")))
    narrow = migration.without_unowned(Settings(controllers=(ROUTE, "*")))
    assert [name for name in KNOWN if not is_enabled(name, narrow.controllers)] == [ROUTE]
    provided = Settings(controllers=("*", "power"))
    assert enabled_provided(migration.without_unowned(provided).controllers) == ["power"]
    moved = LeaderMigration("second", (("power", "kube-controller-manager"),))
    assert enabled_provided(moved.without_unowned(provided).controllers) == []


@pytest.mark.parametrize("leaders", ["", "controllerLeaders: []\n", "controllerLeaders:\n"])
def test_nothing_needs_to_migrate(file: Path, leaders: str) -> None:
    file.write_text(V1 + leaders)
    migration = read_leader_migration(migrating(file))
    assert migration is not None
    assert {migration.lease_role(name) for name in KNOWN} == {"main"}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (V1 + "resourceLock: leases\n", "has an unknown field 'resourceLock'; take it out"),
        (V1 + "foo: 1\n", "has an unknown field 'foo'"),
        (V1.replace("leaderName", "LeaderName"), "has an unknown field 'LeaderName'"),
        (V1 + "leaderName: third\n", "has 'leaderName' twice, in line 3 too (line 4)"),
        ("a|b: 1\na|b: 2\n", "has 'a|b' twice, in line 1 too (line 2); keep"),
        (f"{HEAD}v1\n", "has no leaderName"),
        (f"{HEAD}v1\nleaderName: ''\n", "has no leaderName"),
        (f"{HEAD}v1\nleaderName: [x]\n", "has no leaderName"),
        (V1.replace("/v1", "/v2"), "has an unknown apiVersion; use controllermanager.config.k8s"),
        (V1.replace("controllermanager.", "kubelet."), "has an unknown apiVersion"),
        (V1.replace("Leader", "Follower", 1), "has not the kind LeaderMigrationConfiguration"),
        (BETA.replace("leases", "endpoints"), "has a resourceLock other than leases"),
        (BETA.replace("resourceLock: leases\n", ""), "has a resourceLock other than leases"),
        (V1 + "controllerLeaders: none\n", "has no list of controllerLeaders"),
        (V1 + "controllerLeaders: [{name: a}]\n", "name and component in entry 0"),
        (V1 + "controllerLeaders: [{name: a, component: b, c: d}]\n", "component in entry 0"),
        (V1 + "controllerLeaders: [{name: a, component: ''}]\n", "empty name or component in ent"),
        (V1 + "controllerLeaders: [a]\n", "name and component in entry 0"),
        ("", "is not a mapping"),
        ("[]", "is not a mapping"),
    ],
)
def test_an_invalid_file_is_reported(file: Path, text: str, problem: str) -> None:
    file.write_text(text)
    assert any(f"{file} " in line and problem in line for line in reported(migrating(file)))


def test_all_faults_are_reported_together(file: Path) -> None:
    file.write_text("kind: x\nfoo: 1\ncontrollerLeaders: [a, {name: '', component: b}]\n")
    assert len(reported(migrating(file))) == 6


def test_a_missing_file_is_reported(tmp_path: Path) -> None:
    [line] = reported(migrating(tmp_path / "none"))
    assert "cannot be read: No such file" in line


def test_the_second_lease_is_another_one() -> None:
    [line] = reported(migrating(leader_elect_resource_name=DEFAULT.lease_name))
    assert "names the main lease" in line
