"""`python -m tests.faults` prints the tables of docs/faults.md."""

from tests.faults.rows import table

if __name__ == "__main__":
    print(table(), end="")
