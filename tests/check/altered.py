"""The real API server behind a proxy that answers some paths in its place."""

import json
from collections.abc import Mapping

from aiohttp import web

from tests.kube.cluster import RealCluster
from tests.proc.fault_proxy import FaultProxy


class Altered(FaultProxy):
    """`answers` are status and body by path."""

    def __init__(self, cluster: RealCluster, answers: Mapping[str, tuple[int, object]]) -> None:
        super().__init__(cluster.url, cluster.ca_file)
        self._answers = answers

    async def _pass(self, request: web.Request) -> web.Response:
        if request.path not in self._answers:
            return await super()._pass(request)
        status, body = self._answers[request.path]
        return web.Response(status=status, body=json.dumps(body))
