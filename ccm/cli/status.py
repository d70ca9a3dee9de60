"""The commands that show what a running supervisor does: `status`, and `explain` for one object."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

import click

from ccm.cli.operate import answer_of, runtime_dir_option
from ccm.cli.reporting import (
    Heading,
    example,
    fail,
    live_view,
    output_option,
    say,
    say_document,
    show,
)
from ccm.controllers import EXPLAINED
from ccm.model.conform import conform
from ccm.model.status import STATUS_SCHEMA, Explanation, WorkerExplanation
from ccm.supervisor.https.status_html import ago, duration, until

WATCH_INTERVAL = 1.0  # seconds


@click.command(
    epilog=example(
        "ccm-supervisor status --watch",
        "ccm-supervisor status -o json",
        "ccm-supervisor status --replica https://cp-1:10258 --replica https://cp-2:10258",
    )
)
@click.option("--watch", is_flag=True, help="Show it again every second until Ctrl-C.")
@click.option("--all-replicas", is_flag=True, help="Show all Pods and who led, through kubectl.")
@click.option("--replica", "urls", metavar="URL", multiple=True, help="The same of these hosts.")
@click.option("--replica-ca", metavar="FILE", default="", help="Who signed for them.")
@output_option("table")
@runtime_dir_option
def status(
    watch: bool,
    all_replicas: bool,
    urls: tuple[str, ...],
    replica_ca: str,
    output: str,
    runtime_dir: str,
) -> None:
    """Show who leads, the workers, what is pending and why, and the cloud budget."""
    if all_replicas or urls:
        from ccm.cli.replicas import LEASE, NAMESPACE, SELECTOR, Cluster, show_replicas

        flags = (f"--namespace={NAMESPACE}",)
        show_replicas(Cluster(flags, LEASE, SELECTOR), urls, replica_ca)
        return
    with suppress(KeyboardInterrupt):
        (_watch if watch else _show)(output, lambda: answer_of(runtime_dir, "status"))


def _show(output: str, ask: Callable[[], Mapping[str, Any]]) -> None:
    if output == "table":
        from ccm.cli.fitting import Whole
        from ccm.cli.status_view import status_view

        show(Whole(status_view(ask())))
    else:
        say_document(STATUS_SCHEMA, ask(), output)


def _watch(output: str, ask: Callable[[], Mapping[str, Any]]) -> None:
    """For ever."""
    if output == "table":
        from ccm.cli.fitting import Fitted
        from ccm.cli.status_view import status_view

        with live_view(Fitted(status_view(ask()))) as live:
            while True:
                time.sleep(WATCH_INTERVAL)
                live.update(Fitted(status_view(ask())), refresh=True)
    while True:
        say_document(STATUS_SCHEMA, ask(), output, on_one_line=True)
        time.sleep(WATCH_INTERVAL)


@click.command(
    epilog=example(
        "ccm-supervisor explain node vm-1",
        "ccm-supervisor explain service default/web",
        "ccm-supervisor explain pv/data",
    )
)
@click.argument(
    "kind",
    shell_complete=lambda _, __, text: [item for item in EXPLAINED if item.startswith(text)],
)
@click.argument("name", default="")
@click.option("-n", "--namespace", default="default", show_default=True, help="Of a Service.")
@output_option("text")
@runtime_dir_option
def explain(kind: str, name: str, namespace: str, output: str, runtime_dir: str) -> None:
    """Show the last decision about an object, and what comes next.

    KIND is node, service or pv; KIND/NAME is one word, too. NAME of a Service may be
    NAMESPACE/NAME. Exits with 1 when there is no such object.
    """
    kind, name = _object(kind, name)
    if kind == "service" and "/" not in name:
        name = f"{namespace}/{name}"
    answer = answer_of(runtime_dir, "explain", kind=kind, name=name)
    workers = answer["workers"]
    if output != "text":
        say_document("explain/v1", answer, output)
    elif any(map(_has_seen, workers)) or not workers:
        say(*_explanation(conform(Explanation, answer)))
    if not any(worker.get("exists") for worker in workers):
        fail([f"no worker here knows a {kind} {name!r}"])


def _has_seen(worker: Mapping[str, Any]) -> bool:
    """Whether it knows the object, or decided about it once; one that is silent may."""
    decided = worker.get("decided_seconds_ago") is not None
    return worker.get("exists", True) or decided or worker.get("in_flight", False)


def _object(kind: str, name: str) -> tuple[str, str]:
    """Kind and name, of `KIND NAME` and `KIND/NAME`."""
    if not name:
        kind, _, name = kind.partition("/")
    written = kind.lower()
    found = [key for key, item in EXPLAINED.items() if written in (key, *item.short_names)]
    if not found:
        raise click.BadParameter(
            f"{kind!r}: choose one of {', '.join(EXPLAINED)}", param_hint="KIND"
        )
    if not name:
        raise click.UsageError(f"name the {found[0]}: explain {found[0]} NAME")
    return found[0], name


def _explanation(answer: Explanation) -> Iterator[str]:
    yield Heading(f"{answer['kind']} {answer['name']}")
    if standby := answer.get("standby"):
        yield f"  this replica does not act ({standby}); the decisions are the leader's:"
        yield f"    kubectl ccm explain {answer['kind']} {answer['name']}"
    if not answer["workers"]:
        yield "  no controller reconciles it: see --controllers"
    for worker in answer["workers"]:
        decided = worker.get("decided", "is not running")
        yield f"  {worker['worker']} ({worker['state']}): {decided}"
        yield from (f"    {line}" for line in _of_worker(worker))
    if deletion := answer.get("deletion"):
        left = f", {duration(deletion['seconds'])} left" if deletion.get("seconds") else ""
        yield f"  supervisor, on deleting it: {deletion['verdict']} ({deletion['reason']}{left})"
        yield from (f"    {deletion[part]}" for part in ("meaning", "remedy") if part in deletion)


def _of_worker(worker: WorkerExplanation) -> Iterator[str]:
    if worker.get("quarantined"):
        yield f"quarantined: {worker['quarantined']}"
    if worker.get("decided_seconds_ago") is not None:
        yield f"decided {ago(worker['decided_seconds_ago'])}; {_next_reconcile(worker)}"
    yield from (f"{name}: {text}" for name, text in worker.get("details", {}).items())


def _next_reconcile(worker: WorkerExplanation) -> str:
    if worker["in_flight"]:
        return "being reconciled now"
    failures = f" after {worker['failures']} failures in a row" if worker["failures"] else ""
    if worker["next_try_seconds"] is not None:
        return f"reconciled again {until(worker['next_try_seconds'])}{failures}"
    return f"reconciled again when something changes{failures}"
