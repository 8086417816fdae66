"""Reads `Retry-After`: how long the other side of an HTTP call asks to wait (RFC 9110, section 10.2.3)."""

import time
from datetime import timedelta
from email.utils import parsedate_to_datetime


def retry_after(value: str, longest: timedelta) -> timedelta | None:
    """Return the time to wait, or None when the header says nothing sensible.

    Args:
        value: the header: seconds, or a date.
        longest: what a wish to wait longer counts as.
    """
    value = value.strip()
    try:
        wait = timedelta(seconds=float(value))
    except (OverflowError, ValueError):
        try:
            wait = timedelta(seconds=parsedate_to_datetime(value).timestamp() - time.time())
        except (TypeError, ValueError):
            return None
    return min(wait, longest) if wait > timedelta() else None
