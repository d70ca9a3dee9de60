"""Providers that are wrong about routes and volumes."""

ROUTES = (
    (
        "routes of others are listed as ours",
        'if record["tags"].get("cluster") == self._cluster',
        'if record["tags"].get("cluster") != "none"',
        "routes::test_a_route_without_our_mark_is_not_listed",
    ),
    (
        "a blackhole looks like a route",
        'is_blackhole=record["machine"] not in living',
        "is_blackhole=False",
        "routes::test_a_route_whose_machine_ended_is_a_blackhole_that_can_be_deleted",
    ),
    (
        "a blackhole is not listed",
        'if record["tags"].get("cluster") == self._cluster',
        'if record["tags"].get("cluster") == self._cluster and record["machine"] in living',
        "routes::test_a_route_whose_machine_ended_is_a_blackhole_that_can_be_deleted",
    ),
    (
        "a route whose Node is not known is not listed",
        'if record["tags"].get("cluster") == self._cluster',
        'if record["tags"].get("cluster") == self._cluster and PREFIX + record["machine"] in names',
        "routes::test_a_route_to_a_machine_without_a_node_has_no_node",
    ),
    (
        "a route that is there already is a failure",
        'if self._api.get("GetRoutes", route["id"]) != route:',
        "if route:",
        "routes::test_a_route_that_is_there_is_created_with_success",
    ),
    (
        "a network that another routes is success",
        'if self._api.get("GetRoutes", route["id"]) != route:',
        "if not route:",
        "routes::test_a_network_that_another_routes_is_left_to_him",
    ),
    (
        "a network that another routes is taken",
        "        except Refused:\n",
        "        except Refused:\n"
        "            for record in self._api.list('ListRoutes').records:\n"
        "                if record['cidr'] == cidr and record['machine'] != machine:\n"
        "                    self._api.write('DeleteRoutes', ref=record['id'])\n",
        "routes::test_a_network_that_another_routes_is_left_to_him",
    ),
    (
        "a route that is gone cannot be deleted",
        "        except NotFound:\n            return",
        "        except KeyError:\n            return",
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
        '"id": f"{self._cluster}-{machine}-{cidr}"',
        '"id": f"{self._cluster}-{machine}"',
        "routes::test_a_node_may_have_several_networks",
    ),
    (
        "a call a route",
        "        return [\n            Route(",
        "        for record in self._api.list('ListRoutes').records:\n"
        "            self._api.get('GetRoutes', record['id'])\n"
        "        return [\n            Route(",
        "routes::test_listing_does_not_cost_a_call_a_route",
    ),
)

VOLUMES = (
    (
        "a volume that is not there is not known for ever",
        "for handle in found.not_found}",
        "for handle in ()}",
        "volumes::test_volumes_that_are_not_there_are_gone_and_spoil_no_other",
    ),
    (
        "an error is taken for a volume that is gone",
        "        return places | look_up(self.batch_size, Lookup(asked, self._look_up))\n",
        "        try:\n"
        "            return places | look_up(self.batch_size, Lookup(asked, self._look_up))\n"
        "        except Exception:\n"
        "            return {volume.name: Gone('nothing was found') for volume in volumes}\n",
        "volumes::test_when_nothing_could_be_read_no_volume_is_gone",
    ),
    (
        "a volume that is being made is gone",
        'nowhere = Unknown("the cloud',
        'nowhere = Gone("the cloud',
        "volumes::test_a_volume_that_is_still_being_made_is_unknown",
    ),
    (
        "a volume is in its first zone only",
        'tuple(r["zones"])',
        'tuple(r["zones"][:1])',
        "volumes::test_a_volume_has_its_zones_and_their_region",
    ),
    (
        "one call a volume",
        "look_up(self.batch_size, ",
        "look_up(1, ",
        "volumes::test_volumes_cost_a_call_a_batch",
    ),
)
