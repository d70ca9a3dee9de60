"""Whether every identity may do at the API server what its controllers need."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from ccm.checks.check import Check
from ccm.checks.finding import Finding, counted, failed, not_checked, ok, warning
from ccm.checks.look.rights import Answer, ask
from ccm.checks.site import Site
from ccm.manifests.subjects import subjects
from ccm.model.rbac import PolicyRule

REMEDY = "apply what 'ccm-supervisor manifests' prints for these flags"


@dataclass(frozen=True, slots=True)
class Asked:
    """What a process needs, and what the API server says to that."""

    process: str
    answers: Sequence[Answer]


async def look(site: Site) -> list[Asked]:
    """The supervisor is who asks; a worker with an account of its own is asked about."""
    kube = await site.kube()
    supervisor, *workers = subjects(site.settings, "")
    asked = [Asked(supervisor.process, await ask(kube, supervisor.rights))]
    for worker in workers:
        user = f"system:serviceaccount:{worker.namespace}:{worker.name}"
        asked.append(Asked(f"{worker.process} ({user})", await ask(kube, worker.rights, user)))
    return asked


def judge(asked: Iterable[Asked]) -> Iterator[Finding]:
    for each in asked:
        denied = [answer for answer in each.answers if answer.is_allowed is False]
        yield from _of_denied(each.process, denied)
        if any(answer.is_allowed is None for answer in each.answers):
            yield not_checked(
                f"what {each.process} may do: this identity may not ask about others",
                "for this check, use a kubeconfig that may create subjectaccessreviews",
            )
        elif not denied:
            yield ok(
                f"{each.process}: {counted(len(each.answers), 'right')} needed, none is missing"
            )


def _of_denied(process: str, denied: Sequence[Answer]) -> Iterator[Finding]:
    """One finding for each resource."""
    for right, answers in groupby(denied, lambda answer: answer.grain.right):
        verbs = ", ".join(dict.fromkeys(answer.grain.verb for answer in answers))
        seen = f"{process} may not {verbs} {_what(right)}: {right.purpose}"
        # Without Events people are told less; everything else is work that is not done.
        yield (warning if right.resource == "events" else failed)(seen, REMEDY)


def _what(right: PolicyRule) -> str:
    group = f".{right.group}" if right.group else ""
    names = f" {', '.join(right.names)}" if right.names else ""
    where = f" in {right.namespace}" if right.namespace else ""
    return f"{right.resource}{group}{names}{where}"


CHECK = Check("rights", look, judge)
