"""Prints the fault table, for `make docs`."""

from .rows import table

if __name__ == "__main__":
    print(table(), end="")
