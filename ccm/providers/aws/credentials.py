"""Who we are to AWS: what the SDK's own chain finds, and finds again once AWS has refused it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any

from botocore.config import Config
from botocore.credentials import AssumeRoleCredentialFetcher, DeferredRefreshableCredentials
from botocore.session import Session

from ccm.cloud.credentials import RefusalPause, is_shown
from ccm.cloud.gate import for_all
from ccm.errors import Unauthenticated
from ccm.providers.aws.config import AwsConfig
from ccm.providers.aws.wire import SMALL_ANSWER, UNREADABLE, new_session, time_limit
from ccm.redaction import register_secrets

OF_FILES = frozenset({"env", "shared-credentials-file", "config-file", None})
"""Methods of botocore by which looking again costs nothing; None has found nothing."""


class AwsCredentials:
    """Signs for all clients as botocore's `Credentials`, those that the chain found last.

    The chain renews what expires by itself. What it has from a file it reads once: in here it looks
    again when AWS has refused that, at each call for files, else when the pause is over.
    """

    def __init__(self, find: Callable[[], Any], timeout: float) -> None:
        self._find, self._found, self._timeout = find, find(), timeout
        self._signed: Any = None
        self._pause = RefusalPause[Any]("AWS's credentials")
        self._is_refused = False
        self._first, self._were_shown = Lock(), False

    @property
    def method(self) -> str | None:
        """How the chain found them, as botocore calls it."""
        return getattr(self._found, "method", None)

    def get_frozen_credentials(self) -> Any:
        """Those of now, for botocore; None where there are none."""
        if self._found is None:
            self._found = self._find()
        if self._found:
            self._signed = self._renewed(self._found)
            given = self._signed.secret_key, self._signed.token or ""
            register_secrets(*(it for it in given if self.method in OF_FILES or is_shown(it)))
        return self._signed

    def get_deferred_property(self, name: str) -> Callable[[], Any]:
        """For botocore, which asks for the account."""
        return lambda: getattr(self._found, name, None)

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Around a call: one alone shows them first, and the others wait for its end.

        Raises `Unauthenticated` while AWS refuses them, unless there are others by now.
        """
        if not self._were_shown:
            with self._first, for_all():
                if not self._were_shown:
                    try:
                        yield
                    finally:
                        self._were_shown = True
                    return
        self._check()
        yield

    def _check(self) -> None:
        if not self._is_refused:
            return
        try:
            self._pause.check(self._signed)
        except Unauthenticated:
            if self.method not in OF_FILES or not self._look_again():
                raise
        else:
            self._look_again()

    def refused(self, error: Unauthenticated) -> Unauthenticated:
        """AWS refused them: the error to raise."""
        self._is_refused = True
        return self._pause.refused(self._signed, error)

    def accepted(self) -> None:
        """AWS took them."""
        if self._is_refused:
            self._is_refused = False
            self._pause.accepted(self._signed)

    def _look_again(self) -> bool:
        """Whether the chain finds others."""
        try:
            found = self._find()
            is_changed = found and self._renewed(found) != self._signed
        except UNREADABLE:
            return False
        if is_changed:
            self._found = found
        return bool(is_changed)

    def _renewed(self, found: Any) -> Any:
        """The credentials of now, which may be asked for in here."""
        with time_limit(self._timeout, SMALL_ANSWER):
            return found.get_frozen_credentials()


def find_credentials(config: AwsConfig, region: str, caller: str, options: Config) -> Any:
    """Those of botocore's usual chain, or of the configured role, which they let us act as.

    Looked for as by a new process; a role's renew themselves.
    """
    with time_limit(config.call_timeout, SMALL_ANSWER):  # a metadata service may answer anything
        source = new_session().get_credentials()
    if not config.role_arn:
        return source
    # A role's trust policy can check on whose behalf it is assumed.
    account = (config.source_arn.split(":") + [""] * 5)[4]
    headers = {"x-amz-source-arn": config.source_arn, "x-amz-source-account": account}
    session = new_session()

    def create_client(service: str, **more: Any) -> Any:
        endpoint = config.endpoint(service, region)
        client = session.create_client(
            service,
            region_name=region,
            endpoint_url=endpoint.url if endpoint else None,
            **{**more, "config": options},
        )
        if config.source_arn:
            client.meta.events.register(
                "before-call.sts.AssumeRole", lambda params, **_: params["headers"].update(headers)
            )
        return client

    name = {"RoleSessionName": f"ccm-supervisor-{caller}"[:64]}
    fetcher = AssumeRoleCredentialFetcher(create_client, source, config.role_arn, extra_args=name)
    return DeferredRefreshableCredentials(fetcher.fetch_credentials, "assume-role")


def use_credentials(session: Session, credentials: Any) -> None:
    """Have all clients of the session sign with these: botocore has no public way."""
    session._credentials = credentials
