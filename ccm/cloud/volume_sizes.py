"""Sizes of volumes for provider authors: from a Kubernetes quantity to the units a cloud sells."""

import math
import re
from fractions import Fraction

BYTE = 1
KB, MB, GB = 1000, 1000**2, 1000**3
KIB, MIB, GIB = 1024, 1024**2, 1024**3

INT32 = 2**31 - 1  # the most that some clouds' APIs take
_INT64 = 2**63 - 1

_QUANTITY = re.compile(
    r"(?P<number>[0-9]+\.?[0-9]*|\.[0-9]+)"
    r"(?:(?P<suffix>[KMGTPE]i|[numkMGTPE])|[eE](?P<exponent>[+-]?[0-9]{1,3}))?"
)
_DECIMAL = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {
    suffix: 10 * power for power, suffix in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), 1)
}


def round_up(quantity: str, unit: int, most: int = _INT64) -> int:
    """How many units of `unit` bytes hold `quantity`, such as `1.2Gi`.

    ValueError when it is no size, reaches 2^63 - 1 bytes, or takes more than `most` units.
    """
    size = _bytes(quantity)
    if size >= _INT64:
        raise ValueError(f"quantity {quantity} is too great, overflows int64")
    units = math.ceil(size / unit)
    if units > most:
        raise ValueError(f"quantity {quantity} is more than {most} units of {unit} bytes")
    return units


def _bytes(quantity: str) -> Fraction:
    match = _QUANTITY.fullmatch(quantity)
    if not match:
        raise ValueError(f"{quantity!r} is not a size, such as 1.2Gi or 500M")
    number, suffix, exponent = match.group("number", "suffix", "exponent")
    if suffix in _BINARY:
        return Fraction(number) * (1 << _BINARY[suffix])
    return Fraction(f"{number}e{int(exponent or 0) + _DECIMAL.get(suffix, 0)}")
