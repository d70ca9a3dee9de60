"""Tags of many instances at once: one read for a batch, one write for each difference in it."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from ccm.cloud.machines import foreign_text
from ccm.errors import CloudError, Throttled
from ccm.model.cloud import Answer, Gone, Instance, Unknown
from ccm.model.objects import mapping, text
from ccm.providers.aws.client import (
    ID_NOT_FOUND,
    MAX_FILTER_VALUES,
    AwsApi,
    call_without_wrong_ids,
)
from ccm.providers.aws.tags import ClusterTagging, TagRequest, read_tags, tag_list
from ccm.providers.aws.vpc import GONE_STATES


class InstanceTags:
    """Makes the tags of instances what is asked for; those of other clusters are left alone."""

    batch_size = MAX_FILTER_VALUES

    def __init__(self, api: AwsApi, tagging: ClusterTagging) -> None:
        self._api, self._tagging = api, tagging

    def describe(self, requests: Sequence[TagRequest]) -> Mapping[str, Answer]:
        """Write what differs; by instance, `Instance` if nothing is left to do, else `Unknown`."""
        asked, tag = {item.name: item for item in requests}, self._tagging.required_tag()
        answers: dict[str, Answer] = {item: _gone(item) for item in asked}
        changes: dict[tuple[bool, tuple[tuple[str, str], ...]], list[str]] = defaultdict(list)
        for record in self._api.find_instances(list(asked)):
            instance_id, current = text(record.get("InstanceId")), read_tags(record.get("Tags"))
            request = asked.get(instance_id)
            if request is None or mapping(record.get("State")).get("Name") in GONE_STATES:
                continue
            if tag and not tag.is_on(current):
                lacks = Unknown(foreign_text(f"instance {instance_id}", [f"tag:{tag.key}"]))
                answers[instance_id] = lacks if request.is_wanted else Instance(instance_id)
            elif not request.has_room(current):
                answers[instance_id] = Unknown(f"instance {instance_id} has no room for the tags")
            else:
                change = tuple(sorted(request.change(current).items()))
                changes[request.is_wanted, change].append(instance_id)
        for (is_wanted, change), instance_ids in changes.items():
            answers |= self._write(is_wanted, dict(change), instance_ids)
        return answers

    def _write(
        self, is_wanted: bool, tags: Mapping[str, str], instance_ids: Sequence[str]
    ) -> dict[str, Answer]:
        """One call; when it fails, the other instances of the batch still get theirs."""
        done: dict[str, Answer] = {
            instance_id: Instance(instance_id) for instance_id in instance_ids
        }
        if not tags:
            return done
        name, listed = "ec2:CreateTags" if is_wanted else "ec2:DeleteTags", tag_list(tags)
        try:
            _, wrong = call_without_wrong_ids(
                (ID_NOT_FOUND,),
                instance_ids,
                lambda left: self._api.call(name, Resources=left, Tags=listed),
            )
        except Throttled:
            raise
        except CloudError as error:
            return {instance_id: Unknown(str(error)) for instance_id in instance_ids}
        return done | {item: _gone(item) for item in wrong}


def _gone(instance_id: str) -> Gone:
    return Gone(f"EC2 has no instance {instance_id}")
