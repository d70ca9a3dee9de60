"""Volumes: their region, as there are no zones."""

from ccm.cloud.gate import invoke
from ccm.cloud.testkit.harness import volume
from ccm.model.cloud import Gone, Unknown, VolumePlace
from ccm.providers.digitalocean.volumes import CSI_DRIVER
from tests.labs.digitalocean.server import DigitalOcean
from tests.providers.digitalocean.adapter import ABSENT, spec_of
from tests.providers.digitalocean.conftest import Started


async def test_volumes_have_a_region(do: DigitalOcean, cloud: Started) -> None:
    assert cloud.volumes
    made = do.add_volume("fra1")
    asked = {
        "there": spec_of(CSI_DRIVER, made.upper()),
        "gone": spec_of(CSI_DRIVER, ABSENT),
        "odd": spec_of(CSI_DRIVER, "no-id"),
    }
    volumes = [volume(name, spec) for name, spec in asked.items()]
    answers = await invoke(cloud.volumes.describe, volumes)
    assert answers["there"] == VolumePlace((), "fra1")
    assert isinstance(answers["gone"], Gone)
    assert isinstance(answers["odd"], Gone)
    assert do.reads("/v2/volumes") == ["/v2/volumes"]
    one = await invoke(cloud.volumes.describe, volumes[:1])
    assert one["there"] == VolumePlace((), "fra1")
    del do.volumes[made]["region"]
    odd = await invoke(cloud.volumes.describe, volumes[:1])
    assert isinstance(odd["there"], Unknown)
