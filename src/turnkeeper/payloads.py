"""How values become Temporal payloads: pydantic JSON, and a file for what is too large for a history."""

import asyncio
import dataclasses
import os
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

from temporalio.api.common.v1 import Payload
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.converter import (
    DataConverter,
    ExternalStorage,
    StorageDriver,
    StorageDriverClaim,
    StorageDriverRetrieveContext,
    StorageDriverStoreContext,
)

INLINE_LIMIT = 256 * 1024
"""Payloads of this many bytes or more are kept outside the history (Temporal refuses 2 MiB)."""


class FileStorageDriver(StorageDriver):
    """Keeps payloads as files named by their content, in a folder that all processes share."""

    def __init__(self, folder: Path) -> None:
        """Keep payloads under `folder`, which is created when it is first needed."""
        self._folder = folder

    def name(self) -> str:
        """See `StorageDriver.name`."""
        return "turnkeeper-files"

    async def store(self, context: StorageDriverStoreContext, payloads: Sequence[Payload]) -> list[StorageDriverClaim]:
        """See `StorageDriver.store`; storing the same content twice is storing it once."""
        return [StorageDriverClaim({"sha256": await asyncio.to_thread(self._write, payload)}) for payload in payloads]

    async def retrieve(
        self, context: StorageDriverRetrieveContext, claims: Sequence[StorageDriverClaim]
    ) -> list[Payload]:
        """See `StorageDriver.retrieve`."""
        return [await asyncio.to_thread(self._read, claim.claim_data["sha256"]) for claim in claims]

    def _path(self, digest: str) -> Path:
        return self._folder / digest[:2] / digest

    def _write(self, payload: Payload) -> str:
        data = payload.SerializeToString(deterministic=True)
        digest = sha256(data).hexdigest()
        path = self._path(digest)
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            unfinished = path.with_suffix(f".{os.getpid()}-{id(payload)}")
            unfinished.write_bytes(data)
            unfinished.rename(path)
        return digest

    def _read(self, digest: str) -> Payload:
        return Payload.FromString(self._path(digest).read_bytes())


def data_converter(folder: Path) -> DataConverter:
    """Return the converter that every client, worker and replayer of one deployment uses.

    Args:
        folder: where large payloads are kept; the same for all processes.
    """
    storage = ExternalStorage(drivers=[FileStorageDriver(folder)], payload_size_threshold=INLINE_LIMIT)
    return dataclasses.replace(pydantic_data_converter, external_storage=storage)
