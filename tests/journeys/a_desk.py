"""A web server for the pods of these journeys."""

import asyncio
import os
from http import HTTPStatus

from websockets.asyncio.server import ServerConnection, serve
from websockets.http11 import Request, Response


def answered(line: ServerConnection, request: Request) -> Response | None:
    if request.headers.get("Authorization") != "Bearer " + os.environ["BERTH_PORT_SECRET"]:
        return line.respond(HTTPStatus.UNAUTHORIZED, "who are you?")
    if "Upgrade" in request.headers:
        return None
    return line.respond(HTTPStatus.OK, f"desk in run {os.environ['BERTH_RUN']}")


async def echo(line: ServerConnection) -> None:
    async for message in line:
        await line.send(f"you said {message!s}")


async def main() -> None:
    host, port = os.environ["BERTH_HOST"], int(os.environ["BERTH_PORT_LAB"])
    async with serve(echo, host, port, process_request=answered):
        print("ready", flush=True)
        await asyncio.Future()


if __name__ == "__main__":
    asyncio.run(main())
