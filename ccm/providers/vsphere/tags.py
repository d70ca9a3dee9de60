"""Tags of vCenter, which have an API of their own: who has which, and of which category it is."""

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from ccm.cloud.lookup import MAX_READS, batches, together
from ccm.errors import CloudError, NotFound
from ccm.model.objects import mapping, objects, text
from ccm.providers.vsphere.inventory import Place
from ccm.providers.vsphere.vcenter import VCenterApi

NAME_TTL = 600.0  # seconds for which the names of tags and categories are cached
MAX_OBJECTS = 2000  # in one request
ASSOCIATION = "/tagging/tag-association?~action=list-attached-tags-on-objects"


@dataclass(frozen=True, slots=True)
class Tag:
    """A tag by its own name and that of its category; both are empty when it is not found."""

    category: str
    name: str


class TagReader:
    """Reads the tags of one vCenter: one request for all objects, and one for each new tag."""

    def __init__(self, api: VCenterApi) -> None:
        self._api = api
        self._tags: dict[str, Tag] = {}
        self._categories: dict[str, str] = {}
        self._read_at = float("-inf")

    async def attached(self, places: Collection[Place]) -> Mapping[str, list[Tag]]:
        """The tags of each of these that has any, by its ID."""
        ids = dict[str, list[str]]()
        for some in batches(list(places), MAX_OBJECTS):
            listed = [{"type": item.kind, "id": item.moid} for item in some]
            body = {"object_ids": listed}
            answer = await self._api.rest("ListAttachedTags", "POST", ASSOCIATION, body)
            if not isinstance(answer, list):
                raise CloudError(f"{self._api.name}: ListAttachedTags: the answer is not a list")
            for record in objects(answer):
                moid = text(mapping(record.get("object_id")).get("id"))
                ids[moid] = [text(tag) for tag in record.get("tag_ids") or ()]
        known = await self._names({tag for some in ids.values() for tag in some})
        return {moid: [known[tag] for tag in some] for moid, some in ids.items() if some}

    async def _names(self, wanted: Collection[str]) -> Mapping[str, Tag]:
        """Those that are known, after reading what is not; others may forget them meanwhile."""
        if time.monotonic() > self._read_at + NAME_TTL:
            self._tags, self._categories, self._read_at = {}, {}, time.monotonic()
        tags, known = self._tags, self._categories
        new = [tag for tag in wanted if tag not in tags]
        for some in batches(new, MAX_READS):  # what ends in between has read some for the next
            await self._read(some, tags, known)
        return dict.fromkeys(new, Tag("", "")) | tags

    async def _read(
        self, wanted: Collection[str], tags: dict[str, Tag], known: dict[str, str]
    ) -> None:
        read = await together(*map(self._tag, wanted))
        records = [record for record in read if record]
        unnamed = {text(record.get("category_id")) for record in records} - known.keys()
        categories = await together(
            *(self._get("GetCategory", "category", item) for item in sorted(unnamed))
        )
        for found in categories:
            known[text(found.get("id"))] = text(found.get("name"))
        for found in records:
            category = known[text(found.get("category_id"))]
            tags[text(found.get("id"))] = Tag(category, text(found.get("name")))

    async def _tag(self, tag: str) -> Mapping[str, object] | None:
        """None for one that is gone, although vCenter lists it on what had it."""
        try:
            return await self._get("GetTag", "tag", tag)
        except NotFound:
            return None

    async def _get(self, operation: str, kind: str, identity: str) -> Mapping[str, object]:
        answer = await self._api.rest(operation, "GET", f"/tagging/{kind}/id:{identity}")
        found = mapping(answer)
        if text(found.get("id")) != identity or not text(found.get("name")):
            raise CloudError(f"{self._api.name}: {operation}: the answer is to another question")
        return found
