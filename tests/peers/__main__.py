"""Prints the tables of differences from upstream's controller of a cloud, for `make docs`."""

import sys

from tests.peers.differences import table

if __name__ == "__main__":
    print(table(sys.argv[1]), end="")
