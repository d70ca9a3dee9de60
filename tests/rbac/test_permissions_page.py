"""`docs/permissions.md` lists what the code declares."""

from ccm.manifests.rbac import subjects
from ccm.model.rbac import PolicyRule
from ccm.settings import Settings
from tests.docs.pages import table_rows


def test_the_table_of_rights_is_the_one_in_the_code() -> None:
    _, *told = table_rows("permissions.md", "rights")
    accounts = subjects(Settings(use_service_account_credentials=True), "kube-system")
    assert told == [row(each.name, right) for each in accounts for right in each.rules]


def row(account: str, right: PolicyRule) -> list[str]:
    resource = ".".join(filter(None, (right.resource, right.group)))
    target = " ".join(filter(None, (f"`{resource}`", ", ".join(right.names))))
    where = right.namespace or "the cluster"
    return [f"`{account}`", ", ".join(right.verbs), target, where, right.purpose]
