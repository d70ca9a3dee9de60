"""The way to AWS: one call at a time through the gate, without retries in the SDK."""

from typing import Any

import boto3
from botocore import xform_name
from botocore.config import Config
from botocore.credentials import AssumeRoleCredentialFetcher, DeferredRefreshableCredentials
from botocore.session import Session, get_session

from ccm.cloud.interface import Gate
from ccm.errors import CloudError
from ccm.model.objects import Json
from ccm.providers.aws.calls import CALLS
from ccm.providers.aws.config import AwsConfig
from ccm.providers.aws.failures import SDK_ERRORS, failure_of

CONNECT_TIMEOUT = 3.0
CONNECTIONS = 16  # more than a worker has threads
CLIENTS = ("ec2", "elb", "elbv2")


class AwsApi:
    """The calls of `CALLS`. Every one is a single HTTP request, never repeated in here.

    Raises `Denied`, `Throttled`, `AwsRefusal` for what will not work until something changes, a
    quota being `AwsNoRoom`, `AwsError` for other errors of AWS, and `CloudError` for everything
    that is not an answer.
    """

    def __init__(self, config: AwsConfig, region: str, gate: Gate, caller: str) -> None:
        self._gate, self.region = gate, region
        session = get_session()
        if config.role_arn:
            assume_role(session, config, region, caller)
        self._clients = {name: _client(session, name, config, region, caller) for name in CLIENTS}

    def close(self) -> None:
        for client in self._clients.values():
            client.close()

    def call(self, name: str, **parameters: Any) -> Json:
        """The answer to one call, such as `ec2:DescribeInstances`."""
        call = CALLS[name]
        method = getattr(self._clients[call.client], xform_name(call.operation))

        def send() -> Json:
            try:
                answer: Json = method(**parameters)
            except SDK_ERRORS as error:
                raise failure_of(call.operation, error) from error
            return answer

        return self._gate.call_blocking(call.operation, call.budget, send)

    def pages(self, name: str, member: str, **parameters: Any) -> list[Json]:
        """What all pages of the answer have under `member`; never a part of it."""
        sent, given = ("NextToken", "NextToken") if name.startswith("ec2:") else _MARKERS
        items: list[Json] = []
        seen: set[str] = set()
        while True:
            answer = self.call(name, **parameters)
            items += answer.get(member) or []
            token = answer.get(given)
            if not token:
                return items
            if token in seen:
                raise CloudError(f"the pages of {name} go round in a circle")
            seen.add(token)
            parameters[sent] = token


_MARKERS = ("Marker", "NextMarker")


def _client(session: Session, name: str, config: AwsConfig, region: str, caller: str) -> Any:
    options = _options(config, caller)
    endpoint = config.endpoints.get(name)
    if endpoint is None or endpoint.region != region:
        boto = boto3.session.Session(botocore_session=session, region_name=region)
        return boto.client(name, config=options)
    if endpoint.signing_name:
        options = options.merge(Config(signing_name=endpoint.signing_name))
    boto = boto3.session.Session(botocore_session=session, region_name=endpoint.signing_region)
    return boto.client(name, config=options, endpoint_url=endpoint.url)


def _options(config: AwsConfig, caller: str) -> Config:
    """No retries, which the budget would not see; nothing waits for ever."""
    return Config(
        connect_timeout=min(CONNECT_TIMEOUT, config.call_timeout),
        read_timeout=config.call_timeout,
        retries={"mode": "standard", "total_max_attempts": 1},
        max_pool_connections=CONNECTIONS,
        user_agent_extra=f"ccm-supervisor/{caller}",
    )


def assume_role(session: Session, config: AwsConfig, region: str, caller: str) -> None:
    """Let the session act as the configured role; its credentials renew themselves."""

    def create_client(service: str, **options: Any) -> Any:
        endpoint = config.endpoints.get(service)
        client = session.create_client(
            service,
            region_name=region,
            endpoint_url=endpoint.url if endpoint else None,
            **{**options, "config": _options(config, caller)},
        )
        for header, value in _source_headers(config.source_arn).items():
            client.meta.events.register(
                "before-call.sts.AssumeRole",
                lambda params, header=header, value=value, **_: params["headers"].update(
                    {header: value}
                ),
            )
        return client

    fetcher = AssumeRoleCredentialFetcher(
        create_client,
        session.get_credentials(),
        config.role_arn,
        extra_args={"RoleSessionName": f"ccm-supervisor-{caller}"[:64]},
    )
    # botocore has no public way to replace what a session found in the environment.
    session._credentials = DeferredRefreshableCredentials(fetcher.fetch_credentials, "assume-role")


def _source_headers(source_arn: str) -> dict[str, str]:
    """What a role's trust policy can check: on whose behalf it is assumed."""
    if not source_arn:
        return {}
    account = (source_arn.split(":") + [""] * 5)[4]
    return {"x-amz-source-arn": source_arn, "x-amz-source-account": account}
