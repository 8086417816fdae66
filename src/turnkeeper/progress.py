"""What a report of progress may hold, and how it looks on the wire (PR and MS rows)."""

import json
import logging
import math
from typing import Any, Literal, TypedDict

from turnkeeper.chunks import DataChunk
from turnkeeper.json_values import clean_json, clean_text
from turnkeeper.runs import AgentToolMilestone, AgentToolProgress
from turnkeeper.turns import Report

ReportOutcome = Literal["emitted", "coalesced", "inactive"]
"""What became of a report: on its way, held back for a moment in which a newer one may replace it, or nobody's."""

MAX_REPORT_BYTES = 16 * 1024
"""The largest report, as JSON (PR-14 as decided)."""

MAX_MILESTONES = 1_000
"""How many milestones one run may pass; a run carries them all."""

logger = logging.getLogger("turnkeeper.progress")


class ReportFields(TypedDict):
    """The parts of a report, checked."""

    fraction: float | None
    message: str | None
    phase: str | None
    milestone: str | None
    data: Any


def checked_report(fraction: Any, message: Any, phase: Any, milestone: Any, data: Any) -> ReportFields:
    """Return a report as it may travel: a fraction within 0 and 1, texts that are text, data that is JSON.

    A part of a wrong type is dropped, so that a report never breaks the work it reports on (PR-01).

    Raises:
        ValueError: the fraction is not a number (PR-05), the data is not JSON, or it is all over `MAX_REPORT_BYTES`.
    """
    fields: ReportFields = {
        "fraction": _fraction(fraction),
        "message": _text("message", message),
        "phase": _text("phase", phase),
        "milestone": _text("milestone", milestone) or None,
        "data": clean_json(data, "the report's data"),
    }
    size = len(json.dumps(fields, ensure_ascii=False).encode())
    if size > MAX_REPORT_BYTES:
        raise ValueError(f"the report is {size:,} bytes of JSON, over the limit of {MAX_REPORT_BYTES:,}")
    return fields


def progress_chunk(run_path: str, report: Report) -> DataChunk:
    """Return the chunk that shows a report live (PR-06)."""
    # Some clients keep one report for each id, and would show a run's first for ever.
    chunk_id = f"{run_path}:{report.report_id}"
    return DataChunk(type="data-agent-progress", id=chunk_id, transient=True, data=_shown(report))


def milestone_chunk(run_path: str, milestone: AgentToolMilestone, report: Report) -> DataChunk:
    """Return the chunk that shows a milestone; the same milestone again replaces it (MS-06)."""
    data = {"name": milestone.name, "sequence": milestone.sequence, **_shown(report)}
    return DataChunk(type="data-agent-milestone", id=f"{run_path}:{milestone.sequence}", data=data)


def progress_of(report: Report) -> AgentToolProgress:
    """Return a report as hooks and inspections have it."""
    return AgentToolProgress.model_validate(report.model_dump(exclude={"report_id"}, exclude_none=True))


def _shown(report: Report) -> dict[str, Any]:
    """Return what a chunk says of a report; `at` is in milliseconds since the epoch."""
    shown = report.model_dump(mode="json", include={"fraction", "message", "phase", "data"})
    # As the reference's clients have it, who compare it with their clock.
    return {"at": round(report.at.timestamp() * 1000), **shown}


def _fraction(value: Any) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        logger.warning("a report's fraction is dropped: %r is not a number", value)
        return None
    if isinstance(value, float) and math.isnan(value):
        raise ValueError("the report's fraction is not a number")
    return float(min(1, max(0, value)))


def _text(part: str, value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return None if value is None else clean_text(value)
    logger.warning("a report's %s is dropped: it is of type %s, not text", part, type(value).__name__)
    return None
