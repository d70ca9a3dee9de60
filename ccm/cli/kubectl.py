"""`kubectl ccm`: the commands of the leader's Pod, found by the Lease, through the API server.

kubectl itself connects and authenticates, so that its flags, contexts and plugins hold here, too.
"""

import subprocess
import sys
from collections.abc import Sequence

import click
import orjson

from ccm.cli.replicas import LEASE, NAMESPACE, SELECTOR, Cluster, show_replicas
from ccm.cli.reporting import Group, example, reported, say
from ccm.controllers import EXPLAINED
from ccm.model.objects import Node, objects


@click.group(
    cls=Group,
    context_settings={"max_content_width": 100, "help_option_names": ["-h", "--help"]},
    epilog=example("kubectl ccm status --all-replicas", "kubectl ccm explain node worker-1"),
)
@click.option("-n", "--namespace", default=NAMESPACE, show_default=True, help="Of the Pods.")
@click.option("--context", default="", help="Context of the kubeconfig.")
@click.option("--kubeconfig", default="", help="Kubeconfig file, as kubectl takes it.")
@click.option("--lease", default=LEASE, show_default=True, help="Its name.")
@click.option(
    *("-l", "--selector"),
    default=SELECTOR,
    show_default=True,
    help="Labels of the Pods.",
)
@click.pass_context
def main(
    ctx: click.Context, /, namespace: str, context: str, kubeconfig: str, lease: str, selector: str
) -> None:
    """Ask and operate the ccm-supervisor that leads, from anywhere that kubectl works.

    It needs `get` on the Lease, `list` on Pods, and `create` on `pods/exec`.
    """
    given = {"--namespace": namespace, "--context": context, "--kubeconfig": kubeconfig}
    flags = [f"{flag}={value}" for flag, value in given.items() if value]
    ctx.obj = Cluster(flags, lease, selector)


def _on_leader(name: str, text: str, call: str) -> None:
    settings = {"ignore_unknown_options": True, "help_option_names": []}

    @main.command(name, help=text, context_settings=settings, epilog=example(f"kubectl ccm {call}"))
    @click.argument("words", nargs=-1, type=click.UNPROCESSED)
    @click.pass_obj
    def command(cluster: Cluster, words: tuple[str, ...]) -> None:
        if name == "status" and "--all-replicas" in words:
            show_replicas(cluster)
            return
        if words[:1] == ("freeze",) and not any(word.startswith("--by") for word in words):
            words = (*words, f"--by={cluster.user()}")
        if name == "explain":
            explain_certificates(cluster, words)
        terminal = ("-it",) if sys.stdin.isatty() and sys.stdout.isatty() else ()
        current = cluster.exec_words(cluster.leader(), *terminal)
        sys.exit(subprocess.run(("kubectl", *cluster.flags, *current, name, *words)).returncode)


_on_leader("status", "Show the leader's status; --all-replicas: one row each.", "status")
_on_leader("explain", "Show the leader's last decision about an object.", "explain svc/web")
_on_leader("restart", "Have a new process take over a worker's work.", "restart node-0")
_on_leader("deletions", "Show, freeze or allow deletions of Nodes.", "deletions freeze")


def explain_certificates(cluster: Cluster, words: Sequence[str]) -> None:
    """Show for which certificates a Node's kubelet waits, if the user may see that."""
    from ccm.checks.serving_certificates import explain_requests

    given = [word for word in words if not word.startswith("-")]
    kind, _, name = "/".join(given[:2]).partition("/")
    if kind.lower() not in ("node", *EXPLAINED["node"].short_names):
        return
    done = [cluster.run("get", *what, "-o", "json") for what in (("csr",), ("node", name))]
    if not any(each.returncode for each in done):
        requests, node = (orjson.loads(each.stdout) for each in done)
        say(*explain_requests(objects(requests.get("items")), Node(node)), err=True)


def plugin() -> None:
    """The command `kubectl-ccm`, which kubectl calls for `kubectl ccm`."""
    with reported():
        main(prog_name="kubectl ccm")
