"""What EC2 says about Nodes: many to a call, and three answers, never two."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ccm.errors import CloudError
from ccm.model.cloud import Answer, Instance, Unknown
from ccm.model.objects import Json, Node, text
from ccm.providers.aws.client import MAX_FILTER_VALUES, MAX_INSTANCES_PER_PAGE, AwsApi, AwsError
from ccm.providers.aws.ids import INSTANCE_ID
from ccm.providers.aws.instance_records import (
    DescribeResult,
    InstanceQuery,
    answer_for,
    queries_for,
    read_instance,
)
from ccm.providers.aws.tags import ClusterTag, ClusterTagging, read_tags
from ccm.providers.aws.vpc import Zones

ZONE_ID_LABEL = "topology.k8s.aws/zone-id"
NOT_FOUND, MALFORMED = "InvalidInstanceID.NotFound", "InvalidInstanceID.Malformed"
STATES_WITH_NAME = ("pending", "running", "stopping", "stopped", "shutting-down")
"""The states in which an instance has its name; a terminated one's name is free again."""


class AwsInstances:
    """Looks Nodes up by provider ID or resource-based name, else by private DNS name."""

    batch_size = MAX_FILTER_VALUES

    def __init__(
        self, api: AwsApi, tagging: ClusterTagging, zones: Zones, families: Sequence[str]
    ) -> None:
        self._api, self._tagging, self._zones, self._families = api, tagging, zones, families

    def describe(self, nodes: Sequence[Node]) -> Mapping[str, Answer]:
        """Answer for each Node; a call that failed makes only its own Nodes `Unknown`."""
        queries, answers = queries_for(nodes, self.batch_size)
        failures: list[CloudError] = []
        for query in queries:
            try:
                answers |= self._answers(query)
            except CloudError as failure:
                failures.append(failure)
                answers |= dict.fromkeys(query.nodes, Unknown(str(failure)))
        if failures and len(failures) == len(queries):
            raise failures[0]
        return self._with_zone_ids(answers)

    def _answers(self, query: InstanceQuery) -> dict[str, Answer]:
        if query.by_id:
            tag, result = None, describe_by_ids(self._api, query.values)
        else:
            tag, result = self._tagging.required_tag(), self._describe_by_names(query.values)
        read: dict[str, list[Answer]] = defaultdict(list)
        for record in result.records:
            read[text(record.get(query.key))].append(self._read(record, tag))
        return {
            node: answer_for(value, read.get(value, []), result, query.by_id)
            for node, value in query.nodes.items()
        }

    def _describe_by_names(self, names: list[str]) -> DescribeResult:
        filters = [
            {"Name": "private-dns-name", "Values": names},
            {"Name": "instance-state-name", "Values": list(STATES_WITH_NAME)},
        ]
        found = self._api.describe_instances(Filters=filters, MaxResults=MAX_INSTANCES_PER_PAGE)
        return DescribeResult(found)

    def _read(self, record: Json, tag: ClusterTag | None) -> Answer:
        if tag and not tag.is_on(read_tags(record.get("Tags"))):
            instance_id = text(record.get("InstanceId"))
            return Unknown(f"instance {instance_id} has this name, but not the tag {tag.key}")
        return read_instance(record, self._api.region, self._families)

    def _with_zone_ids(self, answers: Mapping[str, Answer]) -> Mapping[str, Answer]:
        """The answers with the label of the zone's ID; one that could not be read is left out."""
        names = {a.zone for a in answers.values() if isinstance(a, Instance) and a.zone}
        try:
            zones = self._zones.by_name(names) if names else {}
        except CloudError:
            return answers
        ids = {name: zone.id for name, zone in zones.items() if zone.id}
        return {
            name: replace(answer, labels={ZONE_ID_LABEL: ids[answer.zone]})
            if isinstance(answer, Instance) and answer.zone in ids
            else answer
            for name, answer in answers.items()
        }


def describe_by_ids(api: AwsApi, instance_ids: Sequence[str]) -> DescribeResult:
    """Ask about all, and again without those that AWS names as wrong, until it answers.

    AWS fails the whole call for one wrong ID. Each round takes at least one ID away, so there are
    as many rounds as errors. An error that names no ID that was asked for says nothing about any of
    them: it is raised.
    """
    left = list(instance_ids)
    wrong: dict[str, set[str]] = {NOT_FOUND: set(), MALFORMED: set()}
    records: list[Json] = []
    while left:
        try:
            records = api.describe_instances(InstanceIds=left)
            break
        except AwsError as error:
            if error.code not in wrong:
                raise
            named = set(INSTANCE_ID.findall(str(error))) & set(left)
            if not named:
                raise CloudError(str(error)) from error
            wrong[error.code] |= named
            left = [one for one in left if one not in named]
    return DescribeResult(records, frozenset(wrong[NOT_FOUND]), frozenset(wrong[MALFORMED]))
