"""Providers that are wrong about routes and volumes."""

from .mutant import Mutant

ROUTES_AND_VOLUMES = (
    Mutant(
        "routes of others are listed as ours",
        "routes.py",
        'if record["tags"].get("cluster") == self._cluster',
        'if record["tags"].get("cluster") != "none"',
        "ownership::test_a_route_without_our_mark_is_not_listed",
    ),
    Mutant(
        "a blackhole looks like a route",
        "routes.py",
        'is_blackhole=record["machine"] not in living',
        "is_blackhole=False",
        "routes::test_a_route_whose_machine_ended_is_a_blackhole_that_can_be_deleted",
    ),
    Mutant(
        "a blackhole is not listed",
        "routes.py",
        'if record["tags"].get("cluster") == self._cluster',
        'if record["tags"].get("cluster") == self._cluster and record["machine"] in living',
        "routes::test_a_route_whose_machine_ended_is_a_blackhole_that_can_be_deleted",
    ),
    Mutant(
        "a route whose Node is not known is not listed",
        "routes.py",
        'if record["tags"].get("cluster") == self._cluster',
        'if record["tags"].get("cluster") == self._cluster and PREFIX + record["machine"] in names',
        "routes::test_a_route_to_a_machine_without_a_node_has_no_node",
    ),
    Mutant(
        "a route that is there already is a failure",
        "routes.py",
        'if self._api.get("GetRoutes", route["id"]) != route:',
        "if route:",
        "idempotence::test_a_route_that_is_there_is_created_with_success",
    ),
    Mutant(
        "a network that another routes is success",
        "routes.py",
        'if self._api.get("GetRoutes", route["id"]) != route:',
        "if not route:",
        "ownership::test_a_network_that_another_routes_is_left_to_him",
    ),
    Mutant(
        "a network that another routes is taken",
        "routes.py",
        "        except Refused:\n",
        "        except Refused:\n"
        "            for record in self._api.list('ListRoutes').records:\n"
        "                if record['cidr'] == cidr and record['machine'] != machine:\n"
        "                    self._api.write('DeleteRoutes', ref=record['id'])\n",
        "ownership::test_a_network_that_another_routes_is_left_to_him",
    ),
    Mutant(
        "a route that is gone cannot be deleted",
        "routes.py",
        "        except Absent:\n            return",
        "        except KeyError:\n            return",
        "idempotence::test_a_route_that_is_gone_is_deleted_with_success",
    ),
    Mutant(
        "a Node without a machine gets a route to nowhere",
        "routes.py",
        "        if not machine:\n",
        "        if not node:\n",
        "routes::test_a_node_without_a_machine_of_this_cloud_gets_no_route",
    ),
    Mutant(
        "a Node has one network",
        "routes.py",
        '"id": f"{self._cluster}-{machine}-{cidr}"',
        '"id": f"{self._cluster}-{machine}"',
        "routes::test_a_node_may_have_several_networks",
    ),
    Mutant(
        "a call a route",
        "routes.py",
        "        return [\n            Route(",
        "        for record in self._api.list('ListRoutes').records:\n"
        "            self._api.get('GetRoutes', record['id'])\n"
        "        return [\n            Route(",
        "routes::test_listing_does_not_cost_a_call_a_route",
    ),
    Mutant(
        "a volume that is not there is not known for ever",
        "volumes.py",
        "for handle in found.absent}",
        "for handle in ()}",
        "volumes::test_volumes_that_are_not_there_are_gone_and_spoil_no_other",
    ),
    Mutant(
        "an error is taken for a volume that is gone",
        "volumes.py",
        "            raise failures[0]\n",
        "            return {volume.name: Gone('nothing was found') for volume in volumes}\n",
        "volumes::test_when_nothing_could_be_read_no_volume_is_gone",
    ),
    Mutant(
        "a volume that is being made is gone",
        "volumes.py",
        'nowhere = Unknown("the cloud',
        'nowhere = Gone("the cloud',
        "volumes::test_a_volume_that_is_still_being_made_is_unknown",
    ),
    Mutant(
        "a volume is in its first zone only",
        "volumes.py",
        'tuple(r["zones"])',
        'tuple(r["zones"][:1])',
        "volumes::test_a_volume_has_its_zones_and_their_region",
    ),
    Mutant(
        "one call a volume",
        "volumes.py",
        "handles[at : at + self.batch_size] for at in range(0, len(handles), self.batch_size)",
        "[handle] for handle in handles",
        "batches::test_volumes_cost_a_call_a_batch",
    ),
)
