"""Copy files and directories to and from pods."""

from berth.client.aio.workloads.channels import AsyncChannel
from berth.client.channels import CHUNK, ERRORS, OUTPUT, STATUS
from berth.client.config import Settings
from berth.client.copies import CopyResult, ErrorLines, Progress, total_size
from berth.client.errors import CopyFailed
from pools.runtimes.shim.channels.archive import CopyError, base_name
from pools.runtimes.shim.channels.packing import Packer
from pools.runtimes.shim.channels.unpacking import Unpacker


async def copy_to(
    settings: Settings, workload_id: str, source: str, target: str, pod: str | None, progress: Progress | None
) -> CopyResult:
    skipped: list[str] = []
    packer = Packer(source, skipped.append)
    total = total_size(source) if progress is not None else 0
    async with AsyncChannel(settings, workload_id, {"copy_to": target}, pod=pod) as channel:
        upload = _Upload(channel)
        try:
            for part in packer:
                await upload.send(part)
                if progress is not None:
                    progress(packer.size, total)
        except CopyError as error:
            raise CopyFailed(str(error)) from None
        await upload.finish()
    return CopyResult(packer.files, packer.size, skipped)


class _Upload:
    """Input stream of the program that unpacks an archive in the pod."""

    def __init__(self, channel: AsyncChannel) -> None:
        self._channel = channel
        self._errors = ErrorLines()

    async def send(self, data: bytes) -> None:
        """Send input as soon as the program accepts it. Raises CopyFailed if the program has failed."""
        start = 0
        while start < len(data):
            while self._channel.window <= 0:
                await self._receive()
            part = data[start : start + min(CHUNK, self._channel.window)]
            await self._channel.send_input(part)
            start += len(part)

    async def finish(self) -> None:
        """End the input, and wait until all files have been written. Raises CopyFailed."""
        await self._channel.end_input()
        while self._channel.exit_code is None:
            await self._receive()

    async def _receive(self) -> None:
        kind, payload = await self._channel.receive()
        if kind == ERRORS:
            self._errors.feed(payload)
        elif kind == STATUS and self._channel.exit_code != 0:
            raise CopyFailed(failure_message(self._channel, self._errors))


async def copy_from(
    settings: Settings, workload_id: str, source: str, target: str, pod: str | None, progress: Progress | None
) -> CopyResult:
    unpacker, errors = Unpacker(target, base_name(source)), ErrorLines()
    try:
        async with AsyncChannel(settings, workload_id, {"copy_from": source}, pod=pod) as channel:
            await channel.end_input()
            while channel.exit_code is None:
                kind, payload = await channel.receive()
                if kind == OUTPUT:
                    unpacker.feed(payload)
                    if progress is not None:
                        progress(unpacker.size, unpacker.total)
                elif kind == ERRORS:
                    errors.feed(payload)
        if channel.exit_code != 0 and not unpacker.is_complete:
            raise CopyFailed(failure_message(channel, errors))
        unpacker.close()
        errors.end()
    except CopyError as error:
        raise CopyFailed(str(error)) from None
    finally:
        unpacker.abort()
    return CopyResult(unpacker.files, unpacker.size, errors.summarize())


def failure_message(channel: AsyncChannel, errors: ErrorLines) -> str:
    """Return the reason why the program in the pod failed."""
    errors.feed(channel.failure.encode("utf-8", "replace"))
    errors.end()
    return errors.last or f"The copy process in the pod exited with code {channel.exit_code}."
