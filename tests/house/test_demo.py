"""`make demo` as its user runs it: the whole stack as processes, on ports of its own."""

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE, STDOUT
from pathlib import Path

import httpx
from desk import eventually

from turnkeeper.dev_server import free_port

ROOT = Path(__file__).parent.parent.parent


def environment(data_dir: Path, **more: str) -> dict[str, str]:
    """Return the environment of a stack that meets no other."""
    ports = {f"TURNKEEPER_{name}_PORT": str(free_port()) for name in ("API", "TEMPORAL", "TEMPORAL_UI")}
    return {**os.environ, **ports, "TURNKEEPER_DATA_DIR": str(data_dir), "TURNKEEPER_MODEL": "offline/rules", **more}


async def test_the_demo_answers_without_a_key_and_cleans_up(tmp_path: Path) -> None:
    """Issue A: DEMO_ONCE=1 ends by itself with status 0, and says what to look at."""
    demo = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "examples.research_desk.demo",
        cwd=ROOT,
        env=environment(tmp_path, DEMO_ONCE="1"),
        stdout=PIPE,
        stderr=STDOUT,
    )
    output, _ = await asyncio.wait_for(demo.communicate(), 150)
    text = output.decode()
    assert demo.returncode == 0, text
    assert "calls compare(left='pydantic', right='attrs')" in text
    assert "turn 1 is completed" in text
    for researcher, topic in ((1, "pydantic"), (2, "attrs")):
        told = [line for line in text.splitlines() if f"Researcher {researcher}  " in line]
        assert f'starts on {{"query":"{topic}"}}' in told[0]
        assert "completed: [offline model]" in told[-1]
        for what in ("step 1", f"calls search(query='{topic}')", " 20%  searching", "◆ sources-gathered", "step 2"):
            assert any(what in line for line in told), (what, told)
    assert "calls import_records" in text
    assert "turn 2 is completed" in text
    assert "You: Research rich" in text
    assert "says: The Importer has the table `records` ready" in text
    assert "◆ schema-ready" in text
    assert "◆ rows-written" in text
    assert text.index("schema-ready") < text.index("rows-written") < text.index("turn 4 is completed")
    assert "Your background work, run 2-0-0, finished. The Importer reports:" in " ".join(text.split())
    assert "turnkeeper-watch Assistant/demo --url http://127.0.0.1:" in text
    assert "/agents/Assistant/demo/events" in text
    assert "/namespaces/default/workflows/default%2FAssistant%2Fdemo%2Fturns%2F1" in text
    assert not (tmp_path / "up.json").exists()


async def test_a_stack_that_was_killed_leaves_nothing_that_the_next_one_trips_over(tmp_path: Path) -> None:
    """Issue A, item 9: addresses and process ids in up.json; work survives in the database file."""
    variables = environment(tmp_path)
    first = await start_stack(variables)
    up = await up_file(tmp_path)
    url = f"{up['api']}/agents/Assistant/kept"
    async with httpx.AsyncClient(timeout=60) as api:
        turn = (await api.post(f"{url}/turns?wait=true", json={"message": "Hello"})).json()
        assert turn["status"] == "completed"
        first.send_signal(signal.SIGKILL)
        await first.wait()
        second = await start_stack(variables)
        try:
            again = await eventually(lambda: up_file(tmp_path), lambda found: found != up, seconds=120)
            assert again["processes"] != up["processes"]
            messages = (await api.get(f"{url}/messages")).json()
            assert [message["role"] for message in messages] == ["user", "assistant"]
        finally:
            second.send_signal(signal.SIGTERM)
            assert await asyncio.wait_for(second.wait(), 60) == 0
    assert not (tmp_path / "up.json").exists()


async def start_stack(variables: dict[str, str]) -> asyncio.subprocess.Process:
    """Start `make up`'s process."""
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "deploy.local_stack", cwd=ROOT, env=variables, stdout=asyncio.subprocess.DEVNULL
    )


async def up_file(data_dir: Path) -> dict[str, dict[str, int]]:
    """Return `up.json` as soon as there is one."""

    async def read() -> str:
        try:
            return await asyncio.to_thread((data_dir / "up.json").read_text)
        except FileNotFoundError:
            return ""

    found: dict[str, dict[str, int]] = json.loads(await eventually(read, bool, seconds=120))
    return found
