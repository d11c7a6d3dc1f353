"""The errors of packing and keeping the code of a job.

One rule: the message names the file or the folder, and what to do.

    CodeError
    ├── FolderRefused  the folder or one of its entries cannot be packed
    ├── CodeTooLarge   the packed code is larger than its store takes; the message names the largest entries
    └── StoreFailed    the code could not be kept
"""

from coordinator import terminal
from coordinator.errors import CoordinatorError


class CodeError(CoordinatorError):
    """The code of a job cannot be packed or kept."""


class FolderRefused(CodeError):
    """The folder, or one of its entries, cannot be packed."""

    def __init__(self, message: str) -> None:
        """Create an error of one line: the name of a file may have line ends."""
        super().__init__(terminal.one_line(message))


class CodeTooLarge(CodeError):
    """The packed code is too large for its store."""


class StoreFailed(CodeError):
    """The code could not be kept."""
