"""Large payloads are kept as files, named by their content."""

import asyncio
from pathlib import Path

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.converter import StorageDriverClaim, StorageDriverRetrieveContext, StorageDriverStoreContext

from turnkeeper.messages import UIMessage, user_message
from turnkeeper.payloads import INLINE_LIMIT, FileStorageDriver, data_converter

STORE = StorageDriverStoreContext()
RETRIEVE = StorageDriverRetrieveContext()


def _payload(data: bytes) -> Payload:
    return Payload(metadata={"encoding": b"json/plain", "z": b"1", "a": b"2"}, data=data)


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


async def test_what_was_stored_is_retrieved_in_order(tmp_path: Path) -> None:
    """Data and metadata come back as they were, by another driver on the same folder too."""
    payloads = [_payload(b"one"), _payload(b"two"), Payload()]
    claims = await FileStorageDriver(tmp_path).store(STORE, payloads)
    assert await FileStorageDriver(tmp_path).retrieve(RETRIEVE, claims) == payloads
    assert await FileStorageDriver(tmp_path).retrieve(RETRIEVE, claims[::-1]) == payloads[::-1]


async def test_the_same_content_is_kept_once(tmp_path: Path) -> None:
    """A replay or a retry stores nothing new, even at the same time."""
    driver = FileStorageDriver(tmp_path)
    stored = await asyncio.gather(*(driver.store(STORE, [_payload(b"same")]) for _ in range(8)))
    assert len({claim.claim_data["sha256"] for [claim] in stored}) == 1
    assert len(_files(tmp_path)) == 1


async def test_different_content_is_kept_apart(tmp_path: Path) -> None:
    """The metadata is part of the content."""
    driver = FileStorageDriver(tmp_path)
    await driver.store(STORE, [_payload(b"one"), Payload(data=b"one"), _payload(b"two")])
    assert len(_files(tmp_path)) == 3


async def test_the_folder_begins_to_exist_when_it_is_needed(tmp_path: Path) -> None:
    """Making a driver touches nothing."""
    folder = tmp_path / "data" / "payloads"
    driver = FileStorageDriver(folder)
    assert not folder.exists()
    await driver.store(STORE, [_payload(b"one")])
    assert len(_files(folder)) == 1


async def test_nothing_unfinished_is_left_behind(tmp_path: Path) -> None:
    """Files appear whole, under their final names."""
    [claim] = await FileStorageDriver(tmp_path).store(STORE, [_payload(b"one")])
    assert [path.name for path in _files(tmp_path)] == [claim.claim_data["sha256"]]


async def test_what_is_not_there_cannot_be_retrieved(tmp_path: Path) -> None:
    """A process with another folder says so instead of making something up."""
    with pytest.raises(FileNotFoundError):
        await FileStorageDriver(tmp_path).retrieve(RETRIEVE, [StorageDriverClaim({"sha256": "0" * 64})])


def test_the_drivers_name_never_changes(tmp_path: Path) -> None:
    """Histories hold it."""
    assert FileStorageDriver(tmp_path).name() == "turnkeeper-files"


async def test_a_small_value_stays_in_the_history(tmp_path: Path) -> None:
    """Only what is too large goes to a file."""
    [payload] = await data_converter(tmp_path).encode([user_message("m", "hi")])
    assert _files(tmp_path) == []
    assert payload.data == b'{"id":"m","role":"user","parts":[{"type":"text","text":"hi"}]}'


async def test_a_large_value_goes_to_a_file_and_comes_back(tmp_path: Path) -> None:
    """A message of the size limit crosses a workflow's edge without filling its history."""
    message = user_message("m", "x" * INLINE_LIMIT)
    [payload] = await data_converter(tmp_path).encode([message])
    assert payload.ByteSize() < 1024
    assert len(_files(tmp_path)) == 1
    assert await data_converter(tmp_path).decode([payload], [UIMessage]) == [message]
