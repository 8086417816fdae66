"""The registry of agent-tool runs that one workflow dispatched, and the rules for admitting another."""

from collections.abc import Iterable
from datetime import datetime

from turnkeeper.dispatches import Delivery, DispatchRunInput, RunOwner, RunRecord, RunWatch
from turnkeeper.errors import Conflict
from turnkeeper.outcomes import error_result
from turnkeeper.runs import AgentToolResult, AgentToolRunInfo, RunStatus, input_digest, input_preview, run_id_taken
from turnkeeper.turns import MAX_DEPTH, MAX_OPEN_RUNS

OPEN_STATUSES = ("starting", "running")

LEFT_BEHIND = "what awaited it has ended"
"""Why a run is aborted whose turn or run was terminated."""


class RunRegistry:
    """Rows by path, oldest first; the path of a workflow's own run is its run id."""

    def __init__(self, records: Iterable[RunRecord] = (), open_elsewhere: int = 0) -> None:
        """Begin with `records`.

        Args:
            records: rows from before a continue-as-new.
            open_elsewhere: runs of the same instance that go on but are not in this registry; they hold slots (CC-05).
        """
        self._records = {record.path: record for record in records}
        self._open_elsewhere = open_elsewhere

    @property
    def records(self) -> tuple[RunRecord, ...]:
        """All rows."""
        return tuple(self._records.values())

    @property
    def open_count(self) -> int:
        """How many runs hold a slot of the cap (CC-04, CC-05)."""
        return sum(record.info.status in OPEN_STATUSES for record in self._records.values())

    def record(self, path: str) -> RunRecord | None:
        """Return a run's record, or None if there is none."""
        return self._records.get(path)

    def info(self, path: str) -> AgentToolRunInfo:
        """Return a row that is known to exist."""
        return self._records[path].info

    def find_info(self, path: str) -> AgentToolRunInfo | None:
        """Return a row, or None if there is none."""
        record = self._records.get(path)
        return record.info if record else None

    def result(self, path: str) -> AgentToolResult | None:
        """Return how a run ended, or None while it goes on or if it has no row."""
        record = self._records.get(path)
        return record.result if record else None

    def is_open(self, path: str) -> bool:
        """Tell whether a run has a row and has not ended."""
        record = self._records.get(path)
        return record is not None and record.result is None

    def is_refused(self, path: str) -> bool:
        """Tell whether a run was not admitted."""
        record = self._records.get(path)
        return record is not None and record.refused

    def is_starting(self, path: str) -> bool:
        """Tell whether a run has a row but is not known to have started."""
        record = self._records.get(path)
        return record is not None and record.info.status == "starting"

    def find(self, request: DispatchRunInput) -> RunRecord | None:
        """Return the row of a run that was dispatched before under the requested id.

        A refusal is not remembered (DI-15).

        Raises:
            Conflict: the id belongs to a run of another agent type or with another input (DI-16).
        """
        record = self._records.get(request.path)
        if record is None or record.refused:
            return None
        if record.info.agent_type != request.profile.agent_type or record.input_digest != input_digest(request.input):
            raise Conflict(run_id_taken(request.run_id, record.info.agent_type))
        return record

    def admit(
        self,
        request: DispatchRunInput,
        *,
        depth: int,
        cap: int | None,
        now: datetime,
        watch: RunWatch | None = None,
    ) -> AgentToolResult | None:
        """Add a row for a new run, or refuse it.

        Args:
            request: the run.
            depth: how many runs it would be nested in, itself included.
            cap: how many runs the instance may have open at once.
            now: the workflow's time.
            watch: what a session notes of it beside the row.

        Returns:
            None when the run may start; otherwise the error result that its caller gets.
        """
        refusal = self._refusal(request, depth, cap)
        status: RunStatus = "starting" if refusal is None else "error"
        info = AgentToolRunInfo(
            run_id=request.run_id,
            agent_type=request.profile.agent_type,
            status=status,
            input_preview=input_preview(request.input) if request.input_preview is None else request.input_preview,
            parent_tool_call_id=request.parent_tool_call_id,
            display_order=request.display_order,
            display=request.display,
            detached=None if request.detached is None else True,
            notify_source=request.detached.notify_source if request.detached else None,
            started_at=now,
            completed_at=None if refusal is None else now,
            error=None if refusal is None else refusal.error,
        )
        self._records.pop(request.path, None)
        self._records[request.path] = RunRecord(
            info=info,
            input_digest=input_digest(request.input),
            result=refusal,
            refused=refusal is not None,
            watch=watch,
        )
        return refusal

    def mark_running(self, path: str) -> None:
        """Note that a run has started; its end may already be known, for a signal overtakes a child's start."""
        if self.is_starting(path):
            self._update(path, status="running")

    def mark_ended(self, path: str, result: AgentToolResult, now: datetime) -> None:
        """Note how a run ended; only an `interrupted` may be replaced (DI-24)."""
        record = self._records.get(path)
        if record is None or record.info.status in ("completed", "error", "aborted"):
            return
        self._update(
            path,
            status=result.status,
            completed_at=now,
            summary=result.summary,
            error=result.error,
            reason=result.reason,
            child_still_running=result.child_still_running,
        )
        # The output stays with the run and is read from there; a registry must stay small.
        kept = result.model_copy(update={"output": None})
        self._records[path] = self._records[path].model_copy(update={"result": kept})

    def mark_torn_down(self, path: str) -> None:
        """Note that a run which was given up does not go on any more; without effect on one that has ended itself."""
        record = self._records.get(path)
        if record is not None and record.info.child_still_running and record.result is not None:
            self._update(path, child_still_running=False)
            result = record.result.model_copy(update={"child_still_running": False})
            self._records[path] = self._records[path].model_copy(update={"result": result})

    def update_watch(self, path: str, **changes: object) -> None:
        """Change what a session notes of a run."""
        record = self._records[path]
        if record.watch is not None:
            watch = record.watch.model_copy(update=changes)
            self._records[path] = record.model_copy(update={"watch": watch})

    def delivery(self, path: str, slot: str) -> Delivery | None:
        """Return the telling of a run's end, or of its being given up, if there is one."""
        record = self._records.get(path)
        if record is None or record.watch is None:
            return None
        return next((each for each in record.watch.deliveries if each.slot == slot), None)

    def put_delivery(self, path: str, delivery: Delivery) -> None:
        """Note that a run's end is to be told; each slot holds one (DV-04)."""
        record = self._records[path]
        if record.watch is not None:
            others = tuple(each for each in record.watch.deliveries if each.slot != delivery.slot)
            self.update_watch(path, deliveries=(*others, delivery))

    def update_delivery(self, path: str, slot: str, **changes: object) -> None:
        """Change what is noted of a telling; without effect when its run was cleared meanwhile."""
        record = self._records.get(path)
        if record is None or record.watch is None:
            return
        deliveries = tuple(
            each.model_copy(update=changes) if each.slot == slot else each for each in record.watch.deliveries
        )
        self.update_watch(path, deliveries=deliveries)

    def take_over(self, records: Iterable[RunRecord], now: datetime) -> None:
        """Add the rows of a workflow that has ended, and with it every run that it awaited.

        A run that has a row here already keeps it: the ended workflow had only joined it, or was refused it (DI-14).
        """
        for record in records:
            path, run_id, agent_type = record.path, record.info.run_id, record.info.agent_type
            known = self._records.get(path)
            if known is not None and not known.refused:
                continue
            self._records[path] = record
            ended = AgentToolResult(run_id=run_id, agent_type=agent_type, status="aborted", error=LEFT_BEHIND)
            self.mark_ended(path, ended, now)

    def forget(self, path: str) -> None:
        """Remove a row: its run turned out to be somebody else's, or was cleared."""
        self._records.pop(path, None)

    def _update(self, path: str, **changes: object) -> None:
        record = self._records[path]
        self._records[path] = record.model_copy(update={"info": record.info.model_copy(update=changes)})

    def _open_count_of(self, owner: RunOwner | None) -> int:
        """Return how many open runs are of the same instance; each level has its own cap (NE-03)."""
        instance = owner.instance if owner else None
        owners = [r.watch.owner if r.watch else None for r in self._records.values() if r.info.status in OPEN_STATUSES]
        return sum((each.instance if each else None) == instance for each in owners)

    def _refusal(self, request: DispatchRunInput, depth: int, cap: int | None) -> AgentToolResult | None:
        agent_type = request.profile.agent_type
        if depth > MAX_DEPTH:
            text = (
                f"Agents may be nested {MAX_DEPTH} deep and {agent_type} would be number {depth}. Do the work yourself."
            )
            return error_result(request.run_id, agent_type, text)
        if self.open_count >= MAX_OPEN_RUNS:
            text = f"{MAX_OPEN_RUNS} runs are open, more than which is not possible at once. Wait for some to end."
            return error_result(request.run_id, agent_type, text)
        if cap is not None and self._open_count_of(request.owner) + self._open_elsewhere >= cap:
            text = f"maxConcurrentAgentTools ({cap}) exceeded: wait for a run to end before starting another."
            return error_result(request.run_id, agent_type, text)
        return None
