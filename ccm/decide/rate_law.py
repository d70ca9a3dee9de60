"""How fast one class of cloud calls may go: what a token bucket learns from refusals.

A declared quota is where we start, not the truth: it may be higher than the real limit, and others
may spend from the same account. Only refusals show that, so a bucket learns from each *episode* of
them (all answers to calls that were under way together are one):

- The circuit opens until the cloud's `Retry-After` has passed, for every worker, but after five
  minutes a call asks again.
- If most calls of the run came out of the tokens of an idle bucket, the *burst* was too big: from
  now on it is a little less than what got through. Otherwise the *rate* was too high.
- The calls that got through, divided by all the time since the last episode (open time included),
  is what the cloud gave us: exactly so when it counts with a token bucket, a bit too little when
  it counts within a window. The rate we had is too much. The truth is between the two: the rate
  goes to the former at once and then follows a cubic curve, as TCP CUBIC does. It rises fast
  while it is far below the middle of that bracket, stays long near it, and then probes beyond,
  faster and faster, until the next episode or the declared rate.
- A wide bracket is explored within seconds; a narrow one is left alone for hundreds of calls, so
  that a busy bucket is refused about once in 300 calls. A cloud that sends us away for long is
  probed at that pace, but for a minute at the most: one answer names an hour, and hours would pass.

The curve only moves on while there is demand: an idle bucket has nothing to probe with.

Some clouds say with each answer how many calls are left, of all clients: that many are
made at the most, and until there are more of them they flow no faster than they would last, or one
in five minutes.
"""

import math
from dataclasses import dataclass, field, replace

OPEN_AFTER_REFUSAL = 1.0  # seconds open after a refusal that does not say when to come back
LONGEST_BACKOFF = 30.0  # the same after several such refusals in a row
LONGEST_RETRY_AFTER = 300.0  # a longer Retry-After is not obeyed: one answer may be wrong
LONGEST_WINDOW = 3600.0  # seconds for which what is left of a quota has to last
SAME_ROW_WITHIN = 2.0  # seconds of demand; a refusal within them continues the row
RUN_MEMORY = 5.0  # seconds after which an earlier part of a run weighs 1/e
LOWEST_SHARE = 0.01  # the share of the full rate that refusals cannot take away
DEEPEST_CUT = 4.0  # one episode divides the rate by this at most
MARGIN = 0.97  # how close under the middle of its bracket a rate may begin
PROBE_SECONDS = 0.7  # seconds to reach the middle of a bracket as wide as its middle
LONGEST_PACE = 60.0  # seconds of the same, where the cloud sends us away for longer
PROBE_CALLS = 0.2  # the same in calls, and by the square of the width
SAFE_BURST = 0.8  # of the calls at once that got through
BURST_RECOVERY = 3600.0  # seconds in which a lowered burst returns to the declared one


@dataclass(frozen=True, slots=True)
class Run:
    """Calls granted since the last episode, in how many seconds, and how many of these flowing.

    Older parts fade (`RUN_MEMORY`). Seconds without demand do not count.
    """

    calls: float = 0.0
    seconds: float = 0.0
    flowing: float = 0.0


@dataclass(frozen=True, slots=True)
class Episode:
    """Refusals of calls that were under way together, and how we went before the first of them."""

    at: float
    rate: float
    burst: float
    run: Run
    was_burst: bool
    refused: int = 1


@dataclass(frozen=True, slots=True)
class Bracket:
    """The limit is assumed to be around `middle`; we begin at `low`, `steep` seconds before it."""

    low: float
    middle: float
    steep: float

    def rate(self, age: float) -> float:
        """The cubic curve after `age` seconds of demand."""
        width = self.middle - self.low
        return self.middle + width * (age / self.steep - 1.0) ** 3


@dataclass(frozen=True, slots=True)
class Bucket:
    """One class of calls: `rate` calls a second now, at most `full`, and `tokens` to spend.

    While its circuit is open (`open_until`, monotonic) no call may be made. Until `capped_until`
    it has `left` tokens at the most, and they flow at `cap` at the most.
    """

    full: float
    most: float  # the declared burst
    rate: float
    burst: float
    tokens: float
    at: float
    open_until: float = 0.0
    left: float = math.inf
    cap: float = math.inf
    capped_until: float = 0.0
    run: Run = field(default_factory=Run)
    age: float = 0.0  # seconds of demand since the bracket was found
    bracket: Bracket | None = None
    episode: Episode | None = None
    episodes: int = 0
    row: int = 0  # episodes that followed each other closely

    @classmethod
    def new(cls, per_second: float, burst: float, now: float) -> "Bucket":
        return cls(per_second, burst, per_second, burst, burst, now)


def refill(bucket: Bucket, now: float) -> Bucket:
    """The bucket at `now`: tokens have flowed in, and with demand the rate went on its curve."""
    passed = max(now - bucket.at, 0.0)
    open_for = min(max(bucket.open_until - bucket.at, 0.0), passed)
    most = min(bucket.burst, bucket.left) if now < bucket.capped_until else bucket.burst
    room = max(most - bucket.tokens, 0.0)
    capped_for = min(max(bucket.capped_until - bucket.at, 0.0), passed)
    capped = min(bucket.cap, bucket.rate) * max(capped_for - open_for, 0.0)
    flow = min(capped + bucket.rate * (passed - max(open_for, capped_for)), room)
    busy = flow / bucket.rate
    fade = math.exp(-passed / RUN_MEMORY)
    run = Run(
        bucket.run.calls * fade,
        bucket.run.seconds * fade + open_for + busy,
        bucket.run.flowing * fade + busy,
    )
    age = bucket.age + busy
    return replace(
        bucket,
        at=max(now, bucket.at),
        tokens=bucket.tokens + flow,
        burst=min(bucket.most, bucket.burst + bucket.most * passed / BURST_RECOVERY),
        rate=min(bucket.bracket.rate(age), bucket.full) if bucket.bracket else bucket.full,
        age=age,
        run=run,
    )


def spend(bucket: Bucket, count: int) -> Bucket:
    """The bucket after `count` calls were granted."""
    run = replace(bucket.run, calls=bucket.run.calls + count)
    return replace(bucket, tokens=bucket.tokens - count, run=run)


def throttled(bucket: Bucket, seconds: float | None, now: float, granted: float) -> Bucket:
    """The bucket after the cloud refused, for rate, a call that was granted at `granted`.

    `seconds` is the cloud's own word on when to come back. The answer belongs to the last episode
    if its call was granted before that began, and to a new one otherwise.
    """
    bucket = refill(bucket, now)
    known = bucket.episode
    if known and granted <= known.at:
        episode = replace(known, refused=known.refused + 1)
    else:
        episode = Episode(now, bucket.rate, bucket.burst, bucket.run, _was_burst(bucket, granted))
        row = bucket.row + 1 if known and bucket.age < SAME_ROW_WITHIN else 0
        bucket = replace(bucket, run=Run(), episodes=bucket.episodes + 1, row=row)
    if seconds is None:
        seconds = min(OPEN_AFTER_REFUSAL * 2.0 ** min(bucket.row, 10), LONGEST_BACKOFF)
    until = max(bucket.open_until, now + min(max(seconds, 0.0), LONGEST_RETRY_AFTER))
    opened = replace(bucket, episode=episode, open_until=until, tokens=min(bucket.tokens, 0.0))
    return _learn_burst(opened, episode) if episode.was_burst else _learn_rate(opened, episode)


def remaining(bucket: Bucket, calls: int, seconds: float, now: float) -> Bucket:
    """The bucket after the cloud said that `calls` are left, and more of them in `seconds`."""
    bucket = refill(bucket, now)
    seconds = min(seconds, LONGEST_WINDOW if calls else LONGEST_RETRY_AFTER)
    known = replace(
        bucket,
        tokens=min(bucket.tokens, calls),
        left=calls,
        cap=max(calls / seconds, 1.0 / LONGEST_RETRY_AFTER) if seconds else math.inf,
        capped_until=now + seconds,
    )
    return known if calls else replace(known, open_until=max(bucket.open_until, now + seconds))


def _was_burst(bucket: Bucket, granted: float) -> bool:
    """Whether most calls until `granted` came out of the stock and not out of the flow."""
    late = bucket.at - granted
    flow = bucket.rate * max(bucket.run.flowing - late, 0.0)
    return bucket.run.calls - bucket.rate * late > 2.0 * flow


def _learn_burst(bucket: Bucket, episode: Episode) -> Bucket:
    got_through = max(episode.run.calls - episode.refused, 0.0)
    least = max(1.0, bucket.rate / 20)  # a loop that is 50 ms late loses no calls
    return replace(bucket, burst=min(episode.burst, max(SAFE_BURST * got_through, least)))


def _learn_rate(bucket: Bucket, episode: Episode) -> Bucket:
    run, rate = episode.run, episode.rate
    got_through = max(run.calls - episode.refused, 0.0)
    overall = got_through / max(run.seconds, 1e-3)
    while_flowing = got_through / max(run.flowing, 1e-3)
    if overall > rate / DEEPEST_CUT:
        low = min(overall, MARGIN * rate)
        high = min(math.sqrt(while_flowing * rate), 2.0 * overall)
    else:  # too little got through to conclude
        low = max(rate / DEEPEST_CUT, LOWEST_SHARE * bucket.full)
        high = 2.0 * low
    middle = min(max(math.sqrt(low * high), low / MARGIN), bucket.full)
    low = min(low, MARGIN * middle)
    width = 1.0 - low / middle
    steep = max(
        PROBE_SECONDS / width,
        PROBE_CALLS / (width**2 * middle),
        min(bucket.open_until - episode.at, LONGEST_PACE),
    )
    return replace(bucket, bracket=Bracket(low, middle, steep), age=0.0, rate=low)


def next_token_in(bucket: Bucket, now: float) -> float:
    """Seconds until the bucket can give one more call."""
    opened = max(bucket.open_until - now, 0.0)
    missing = max(1.0 - bucket.tokens, 0.0)
    capped_for, capped = max(bucket.capped_until - now - opened, 0.0), min(bucket.cap, bucket.rate)
    if capped_for and capped * capped_for < missing:
        return opened + capped_for + (missing - capped * capped_for) / bucket.rate
    return opened + missing / (capped if capped_for else bucket.rate)
