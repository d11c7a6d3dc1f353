"""How far the admitted jobs are, by what their training code reports.

One rule: a look asks for few jobs, those first that were asked for longest ago. The others keep what they have said.
"""

import contextlib
from collections.abc import Callable, Iterable
from itertools import count

from coordinator.cli.lazy_group import USER_ERRORS
from coordinator.query.questions import Document, Queries
from crds.keys import JobKey

MOST = 10
"""The most jobs that one look asks for: a request for each."""


class TrainingReports:
    """The reports of the jobs that have been asked for."""

    def __init__(self) -> None:
        self._numbers = count(1)
        self._found: dict[JobKey, tuple[int, Document]] = {}
        """The reports of each job, with a number that rises with each request."""

    def read(self, find: Callable[[], Queries], jobs: Iterable[JobKey]) -> dict[JobKey, Document]:
        """Return what is known of the jobs. `find` returns the source of queries; once that does not answer, it is not
        asked for another job."""
        self._found = {key: self._found.get(key, (0, {})) for key in jobs}
        with contextlib.suppress(*USER_ERRORS):
            queries = find()
            for key in sorted(self._found, key=lambda key: self._found[key][0])[:MOST]:
                self._found[key] = next(self._numbers), queries.reports(key)
        return {key: reports for key, (_, reports) in self._found.items()}
