"""`python3 traffic.py URL RATE [COUNT]`: so many requests a second, all or until stdin ends.

It prints JSON. Each is a connection of its own. What failed has its time; `by` are the nodes.
"""

import itertools
import json
import sys
import threading
import time
import urllib.request
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

TIMEOUT = 5.0
NO_PROXY = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def main(url: str, rate: float, count: int = 0) -> None:
    ended = threading.Event()
    by: Counter[str] = Counter()
    failed: list[str] = []

    def wait() -> None:
        sys.stdin.read()
        ended.set()

    def request() -> None:
        try:
            with NO_PROXY.open(url, timeout=TIMEOUT) as answer:
                by[answer.read().decode().split()[1]] += 1
        except OSError as error:
            failed.append(f"{time.strftime('%X')} {error}")

    if not count:
        threading.Thread(target=wait, daemon=True).start()
    with ThreadPoolExecutor(32) as pool:
        following = time.monotonic()
        for number in itertools.count(1):
            if ended.wait(max(0.0, following - time.monotonic())):
                break
            pool.submit(request)
            following += 1 / rate
            if number == count:
                break
    print(json.dumps({"by": by, "failed": failed}))


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), *map(int, sys.argv[3:]))
