"""API keys that jobs name and only an operator holds: environment variables of a service."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

from podium.core.errors import InvalidArgumentError, Violation
from podium.core.secrets import of_header


@dataclass(frozen=True)
class ApiKeys:
    """The keys of one service.

    Whoever writes a job chooses the address, and must not learn the operator's keys by it: keys
    go only where the operator said.
    """

    prefix: str
    """What the variables' names begin with."""
    service: str
    """Whose variables they are, for errors."""
    trusted: str
    """Where keys may go, for errors: «keys go only to …»."""

    def named(
        self,
        variable: str,
        field: str,
        *,
        trusted: bool,
        environ: Mapping[str, str] = os.environ,
    ) -> str:
        """The key in `variable`, which stands at `field`.

        Args:
            trusted: whether keys may be sent to the address that it is for.

        Raises:
            InvalidArgumentError: a variable of another name, that is not set or holds no key, or
                an address that is not trusted.
        """
        if not re.fullmatch(rf"{self.prefix}[A-Z0-9_]*", variable):
            problem = f"allowed are names that begin with {self.prefix}"
        elif not trusted:
            problem = f"keys go only to {self.trusted}"
        elif not environ.get(variable):
            problem = f"{self.service} has no such environment variable"
        else:
            try:
                return of_header(environ[variable])
            except ValueError as error:
                problem = f"the variable {error}"
        raise InvalidArgumentError(violations=[Violation(field, f"got {variable!r}; {problem}")])
