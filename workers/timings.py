"""How long controllers wait for what: one value a process, so that a test can be quick."""

from dataclasses import dataclass

from ccm.decide.batching import BatchTimings


@dataclass(frozen=True, slots=True)
class Timings:
    """Seconds; the flags say what an operator may set, these need no setting."""

    batch: BatchTimings = BatchTimings()
    throttled_batch_retry: float = 0.05
    """Until a batch for which reconciles wait asks for its next grant."""
    throttled_refresh_retry: float = 5.0
    """Until a batch of the refresh pass, or a suspect, is asked for once more."""
    echo: float = 0.2
    """At the most until our write comes back from the watch, before the next one of its object."""
    answer_ttl: float = 300.0
    """An answer may be acted on; a refresh follows in as many seconds."""

    route_list_interval: float = 10.0
    """From one list of routes to the next that Nodes ask for."""
    incomplete_route_list_retry: float = 3.0
    """Until a list of routes that lacks much is read again."""

    node_debounce: float = 0.2
    """Without a change of any Node before balancers are updated."""
    node_debounce_limit: float = 2.0
    """After which they are updated although Nodes keep changing."""
    node_initialization_limit: float = 10.0
    """The longest that a Service waits, before its first balancer is made, for Nodes that are being
    initialized; and that a Node is waited for."""
    balancer_resync_period: float = 1800.0
    """After which a balancer is compared with its Service again."""
    refusal_retry_period: float = 50.0
    """After which the cloud is asked again for what it refused: a quota or an object there, a right
    or a secret may have changed without a word."""
