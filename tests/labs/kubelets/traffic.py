"""`python3 traffic.py URL RATE`: so many requests a second, until the end of stdin; prints JSON.

Each is a connection of its own. What failed is printed with its time; `by` are the answers' nodes.
"""

import json
import sys
import threading
import time
import urllib.request
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

TIMEOUT = 5.0
NO_PROXY = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def main(url: str, rate: float) -> None:
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

    threading.Thread(target=wait, daemon=True).start()
    with ThreadPoolExecutor(32) as pool:
        following = time.monotonic()
        while not ended.wait(max(0.0, following - time.monotonic())):
            pool.submit(request)
            following += 1 / rate
    print(json.dumps({"by": by, "failed": failed}))


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
