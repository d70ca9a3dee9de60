"""Where a value comes from: flags > environment > file > default."""

import logging
import os
from pathlib import Path
from threading import Thread

import pytest

from ccm.cli.start import startup_notices
from tests.unit.settings.writing import CLOUD, faults, reading, settings


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "ccm.yaml"


def test_the_first_source_that_says_something_wins(file: Path) -> None:
    file.write_text("node-workers: 2\nv: 2\ncluster-name: two\n")
    config = f"--config={file}"
    made = settings(config, "--node-workers=4", CCM_NODE_WORKERS="3", CCM_V="3")
    assert (made.node_workers, made.v, made.cluster_name) == (4, 3, "two")
    assert made.kube_api_in_flight == 48


def test_a_list_is_taken_as_a_whole(file: Path) -> None:
    file.write_text("controllers: [cloud-node, route]\n")
    made = settings(f"--config={file}", CCM_CONTROLLERS="service")
    assert made.controllers == ("service-lb-controller",)


def test_a_variable_may_name_the_file(file: Path) -> None:
    file.write_text("node-workers: 2\n")
    assert settings(CCM_CONFIG=str(file)).node_workers == 2


def test_an_empty_variable_is_an_empty_value() -> None:
    assert settings(CCM_AUTHORIZATION_ALWAYS_ALLOW_PATHS="").authorization_always_allow_paths == ()
    assert "CCM_NODE_WORKERS" in next(iter(faults(CCM_NODE_WORKERS="")))


def test_a_file_has_lists_and_mappings_as_yaml_has_them(file: Path) -> None:
    file.write_text(
        """
        controllers: ["*", -route]
        cluster-cidr: [10.0.0.0/16, "fd00::/48"]
        tls-sni-cert-key:
        - a.crt,a.key:a.example,b.example
        - b.crt,b.key
        cloud-rate: {read: 20, write: 0.5}
        feature-gates: {AllAlpha: true}
        leader-elect: false
        secure-port: 0
        shutdown-timeout: 1m
        worker-memory-limit: 1Gi
        load-balancer-classes: []
        state-dir:
        cert-dir: null
        """
    )
    made = settings(f"--config={file}")
    assert made.controllers == ("*", "-node-route-controller")
    assert made.cluster_cidr == ("10.0.0.0/16", "fd00::/48")
    assert [pair.names for pair in made.tls_sni_cert_key] == [("a.example", "b.example"), ()]
    assert made.cloud_rate == {"read": 20.0, "write": 0.5}
    assert made.feature_gates == {"AllAlpha": True}
    assert (made.leader_elect, made.secure_port, made.shutdown_timeout) == (False, 0, 60.0)
    assert (made.worker_memory_limit, made.load_balancer_classes) == (2**30, ())
    assert (made.state_dir, made.cert_dir) == ("", "")


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("cluster-name: no", "no"),
        ("cluster-name: 1:30", "1:30"),
        ("cluster-name: 0x1f", "0x1f"),
        ("cluster-name: 2024-01-01", "2024-01-01"),
        ("cluster-name: 'null'", "null"),
    ],
)
def test_a_text_in_a_file_stays_as_it_is_written(file: Path, line: str, value: str) -> None:
    file.write_text(line)
    assert settings(f"--config={file}").cluster_name == value


@pytest.mark.parametrize("text", ["", "# nothing yet\n", "{}"])
def test_an_empty_file_says_nothing(file: Path, text: str) -> None:
    file.write_text(text)
    assert settings(f"--config={file}") == settings(f"--config={file}", CCM_V="0")


@pytest.mark.parametrize(
    ("text", "reported"),
    [
        (
            "node-wrokers: 2",
            "'node-wrokers' is not a flag that a file may set; did you mean node-w",
        ),
        (
            "node_workers: 2",
            "'node_workers' is not a flag that a file may set; did you mean node-w",
        ),
        ("NodeWorkers: 2", "'NodeWorkers' is not a flag that a file may set"),
        ("config: other.yaml", "'config' is not a flag that a file may set"),
        ("v: 1\nnode-workers: 2\nv: 2\n", "has 'v' twice, in line 1 too (line 3); keep one"),
        ("cloud-rate: {read: 1, read: 2}", "has 'read' twice, in line 1 too (line 1)"),
        ("a|b: 1\na|b: 2\n", "has 'a|b' twice, in line 1 too (line 2)"),
        ("v: [\n", "is not YAML (line 2); close each bracket"),
        ("- v\n", "is not a mapping; write lines like 'node-workers: 2'"),
        ("v", "is not a mapping"),
        ("v: {a: b}", "'v' has a value of another form; write it as on the command line"),
        ("controllers: {a: b}", "'controllers' has a value of another form"),
        ("controllers: [[a]]", "'controllers' has a value of another form"),
        ("? [a, b]\n: c", "has a key that is not a text (line 1)"),
    ],
)
def test_an_invalid_file_is_reported(file: Path, text: str, reported: str) -> None:
    file.write_text(text)
    found = faults(f"--config={file}")
    assert list(found) == [f"--config={file}"]
    assert reported in found[f"--config={file}"]


def test_an_unreadable_file_is_reported(tmp_path: Path) -> None:
    found = faults(f"--config={tmp_path}")
    assert "cannot be read: Is a directory; give a file" in found[f"--config={tmp_path}"]
    (tmp_path / "binary").write_bytes(b"\x00\xff")
    assert "is not text" in "".join(faults(f"--config={tmp_path}/binary").values())


def test_a_pipe_keeps_no_one_waiting(tmp_path: Path) -> None:
    """A reload reads the file again, in the loop that renews the Lease."""
    os.mkfifo(pipe := tmp_path / "pipe")
    writer = Thread(target=pipe.write_bytes, args=[b""], daemon=True)
    writer.start()  # who waits nevertheless gets something, and the test its end
    assert "it is not a regular file" in faults(f"--config={pipe}")[f"--config={pipe}"]
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    writer.join()
    os.close(reader)


def test_an_invalid_value_is_reported_with_its_source(file: Path) -> None:
    file.write_text("v: much\nnode-workers: 0\ncloud-reserve: 2\n")
    found = faults(f"--config={file}", "--secure-port=x", CCM_NODE_WORKERS="none")
    assert set(found) == {
        f"--v (from {file})",
        f"--cloud-reserve (from {file})",
        "--node-workers (from CCM_NODE_WORKERS)",
        "--secure-port",
    }


def notices(*words: str, **variables: str) -> list[tuple[int, str, str]]:
    made = reading(*words, **variables)
    return [
        (level, message, next(iter(fields.values())))
        for level, message, fields in startup_notices(made, variables)
    ]


def test_each_flag_without_effect_is_a_startup_notice() -> None:
    assert notices("--allocate-node-cidrs", "--cluster-name=x", CCM_WEBHOOKS="*") == [
        (logging.INFO, "flag has no effect", "--allocate-node-cidrs"),
        (logging.INFO, "flag has no effect", "--webhooks"),
    ]


def test_a_deprecated_flag_is_a_warning() -> None:
    assert notices("--allow-untagged-cloud", "--node-sync-period=1m") == [
        (logging.WARNING, "flag is deprecated", "--allow-untagged-cloud"),
        (logging.WARNING, "flag is deprecated", "--node-sync-period"),
        (logging.INFO, "flag has no effect", "--node-sync-period"),
    ]


def test_a_feature_gate_of_a_newer_upstream_is_a_warning() -> None:
    assert notices("--feature-gates=AllAlpha=true,FromTheFuture=false")[-1] == (
        logging.WARNING,
        "feature gates are not known",
        "--feature-gates",
    )


def test_variables_that_name_no_flag_are_a_warning_and_break_nothing() -> None:
    variables = {
        "CCM_NODE_WROKERS": "2",
        "CCM_LONG": "1",
        "HOME": "/",
        "CCM_V": "1",
        "CCM_SANDBOX_DIR": "/x",
    }
    reported = notices(**variables, CCM_SUPERVISOR_FLAGS=CLOUD)
    message = "environment variables name no flag"
    assert reported == [(logging.WARNING, message, "CCM_LONG,CCM_NODE_WROKERS")]
