"""A turn that can be caught in the middle, and what its message must be in the end."""

import json
from collections import Counter

from clients.chats import Chat, gist
from clients.cutting_proxy import CuttingProxy
from clients.npm_clients import Json
from desk import eventually


def waiting_turn(chat: Chat) -> str:
    """Return a text whose turn has a run that reports and waits, and a function tool."""
    look = json.dumps({"query": f'call look {{"name": "{chat.gate}"}}'})
    return f'call add {{"left": 2, "right": 3}}\ncall survey {look}'


async def until_connected(proxy: CuttingProxy, connections: int) -> None:
    """Wait for that many connections."""

    async def count() -> int:
        return proxy.connections

    await eventually(count, lambda found: found >= connections)


def is_whole_once(found: Json, stored: list[Json]) -> bool:
    """Tell whether a client ends with just the messages that the server has, and nothing of them twice."""
    answer = found["messages"][-1]
    ids = Counter(part["id"] for part in answer["parts"] if part["type"].startswith("data-"))
    return [gist(message) for message in found["messages"]] == [gist(message) for message in stored] and set(
        ids.values()
    ) <= {1}
