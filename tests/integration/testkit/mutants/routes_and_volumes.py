"""Providers that are wrong about routes and volumes."""

TWICE = "if not any(route.items() <= existing.items() for existing in routes):"
LOOK_UP = (
    "        return answers | await look_up_async(self.batch_size, Lookup(ids, self._look_up))\n"
)

ROUTES = (
    (
        "routes of others are listed as ours",
        'if record["tags"] == self._tags',
        'if record["tags"] is not None',
        "routes::test_a_route_without_our_mark_is_not_listed",
    ),
    (
        "a blackhole looks like a route",
        'is_blackhole=record["machine"] not in machines',
        "is_blackhole=False",
        "routes::test_a_route_whose_machine_ended_is_a_blackhole_that_can_be_deleted",
    ),
    (
        "a blackhole is not listed",
        'if record["tags"] == self._tags',
        'if record["tags"] == self._tags and record["machine"] in machines',
        "routes::test_a_route_whose_machine_ended_is_a_blackhole_that_can_be_deleted",
    ),
    (
        "a route whose Node is not known is not listed",
        'if record["tags"] == self._tags',
        'if record["tags"] == self._tags and record["machine"] in names',
        "routes::test_a_route_to_a_machine_without_a_node_has_no_node",
    ),
    (
        "a route that is there already is a failure",
        TWICE,
        "if routes:",
        "routes::test_a_route_that_is_there_is_created_with_success",
    ),
    (
        "a network that another routes is success",
        TWICE,
        "if not routes:",
        "routes::test_a_network_that_another_routes_is_left_to_him",
    ),
    (
        "a network that another routes is taken",
        "        except Conflict:\n",
        "        except Conflict:\n"
        "            for record in await self._api.list('ListRoutes', 'routes'):\n"
        "                if record['cidr'] == cidr and record['machine'] != machine:\n"
        "                    await self._api.write('D', 'DELETE', 'routes', record['id'])\n",
        "routes::test_a_network_that_another_routes_is_left_to_him",
    ),
    (
        "a route that is gone cannot be deleted",
        "with suppress(NotFound):",
        "with suppress(KeyError):",
        "routes::test_a_route_that_is_gone_is_deleted_with_success",
    ),
    (
        "a Node without a machine gets a route to nowhere",
        "        if not machine:\n",
        "        if not node:\n",
        "routes::test_a_node_without_a_machine_of_this_cloud_gets_no_route",
    ),
    (
        "a Node has one network",
        "        route: Json =",
        "        for record in await self._api.list('ListRoutes', 'routes'):\n"
        "            if record['machine'] == machine and record['cidr'] != cidr:\n"
        "                await self._api.write('D', 'DELETE', 'routes', record['id'])\n"
        "        route: Json =",
        "routes::test_a_node_may_have_several_networks",
    ),
    (
        "a call a route",
        "        return [\n            Route(",
        "        for record in await self._api.list('ListRoutes', 'routes'):\n"
        "            await self._api.get('GetRoute', 'routes', record['id'])\n"
        "        return [\n            Route(",
        "routes::test_listing_does_not_cost_a_call_a_route",
    ),
)

VOLUMES = (
    (
        "a volume that is not there is not known for ever",
        "for key in ids}",
        "for key in ids if key in places}",
        "volumes::test_volumes_that_are_not_there_are_gone_and_spoil_no_other",
    ),
    (
        "an error is taken for a volume that is gone",
        LOOK_UP,
        "        try:\n"
        f"    {LOOK_UP}"
        "        except Exception:\n"
        "            return {volume.name: Gone('nothing was found') for volume in volumes}\n",
        "volumes::test_when_nothing_could_be_read_no_volume_is_gone",
    ),
    (
        "a volume that is being made is gone",
        LOOK_UP,
        f"        answers = dict.fromkeys(answers, Gone('nothing was found'))\n{LOOK_UP}",
        "volumes::test_a_volume_that_is_still_being_made_is_unknown",
    ),
    (
        "a volume is in its first zone only",
        'tuple(item["zones"])',
        'tuple(item["zones"][:1])',
        "volumes::test_a_volume_has_its_zones_and_their_region",
    ),
    (
        "one call a volume",
        "look_up_async(self.batch_size, ",
        "look_up_async(1, ",
        "volumes::test_volumes_cost_a_call_a_batch",
    ),
)
