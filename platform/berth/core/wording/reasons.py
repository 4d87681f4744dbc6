"""Plain wording for errors from system calls."""

import re

ERRNO = re.compile(r"\[Errno -?\d+\] ")


def plain_reason(error: Exception) -> str:
    """Return the reason for a file or network error, without the error number and the file name."""
    if isinstance(error, UnicodeError):
        return "it is not UTF-8 text"
    strerror = error.strerror if isinstance(error, OSError) else None
    return ERRNO.sub("", strerror or str(error)) or type(error).__name__
