"""Kubernetes' quantities, such as 8Gi or 500m, times a number."""

from __future__ import annotations

import math
import re
from fractions import Fraction

_QUANTITY = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(m|[kMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]+)?")


def times(quantity: str | float, factor: int) -> str:
    """`factor` times as much, in the same unit.

    Raises:
        ValueError: it is no quantity.
    """
    text = str(quantity)
    found = _QUANTITY.fullmatch(text)
    if found is None:
        raise ValueError(f"got {text!r}; allowed is a quantity such as 8Gi or 500m")
    number = Fraction(found[1]) * factor
    # Thousandths are the least that Kubernetes has.
    number = Fraction(math.ceil(number * 1000), 1000)
    whole = str(number.numerator) if number.denominator == 1 else f"{float(number):.3f}".rstrip("0")
    return whole + (found[2] or "")
