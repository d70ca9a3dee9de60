"""Provider IDs, volume IDs and names of nodes, in all the forms that they come in."""

import pytest

from ccm.providers.aws import ids

INSTANCE, OLD = "i-0123456789abcdef0", "i-12345678"
VOLUME = "vol-0123456789abcdef0"


@pytest.mark.parametrize(
    ("provider_id", "instance_id"),
    [
        (f"aws:///us-east-1a/{INSTANCE}", INSTANCE),
        (f"aws:///us-east-1a/{OLD}", OLD),
        (f"aws:///{INSTANCE}", INSTANCE),
        (f"aws:////{INSTANCE}", INSTANCE),
        (f"aws://us-east-1a/{INSTANCE}", INSTANCE),
        (f"aws:///us-east-1a/{INSTANCE}/", INSTANCE),
        (INSTANCE, INSTANCE),
        (f"gce:///us-east-1a/{INSTANCE}", ""),
        ("aws:///us-east-1a/", ""),
        ("aws:///us-east-1a/vol-12345678", ""),
        ("aws:///us-east-1a/i-XYZ", ""),
        *((f"aws:///us-east-1a/i-{'0' * digits}", "") for digits in (7, 9, 16, 18)),
        (f"aws:///us-east-1a/{INSTANCE}?x=1", ""),
        (f"aws://[/{INSTANCE}", INSTANCE),  # a kubelet writes anything: it must not raise
        (f"aws://\u2100/{INSTANCE}", INSTANCE),
        ("aws:///us-east-1a/i-0123456\t789abcdef0", ""),
        (f"aws:///us-east-1a/{INSTANCE}\n", ""),
        ("aws:///us-east-1a/fargate-ip-10-0-0-1", ""),
        ("", ""),
    ],
)
def test_the_instance_of_a_provider_id(provider_id: str, instance_id: str) -> None:
    assert ids.instance_id_of(provider_id) == instance_id


@pytest.mark.parametrize(
    ("handle", "volume_id"),
    [
        (VOLUME, VOLUME),
        (f"aws://us-east-1a/{VOLUME}", VOLUME),
        (f"aws:///us-east-1a/{VOLUME}", VOLUME),
        ("", ""),
        ("placeholder-for-provisioning", ""),
        (INSTANCE, ""),
    ],
)
def test_the_volume_of_a_handle(handle: str, volume_id: str) -> None:
    assert ids.volume_id_of(handle) == volume_id


@pytest.mark.parametrize(
    ("name", "instance_id"),
    [
        (INSTANCE, INSTANCE),
        (f"{INSTANCE}.us-west-2.compute.internal", INSTANCE),
        ("ip-10-0-0-1.ec2.internal", ""),
        ("i-am-a-name", ""),
    ],
)
def test_the_instance_in_a_resource_based_name(name: str, instance_id: str) -> None:
    assert ids.instance_id_in_name(name) == instance_id
