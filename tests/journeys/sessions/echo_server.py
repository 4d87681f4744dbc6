"""A web server for test pods that checks the port's secret and echoes messages."""

import asyncio
import os
from http import HTTPStatus

from websockets.asyncio.server import ServerConnection, serve
from websockets.http11 import Request, Response


def check_request(connection: ServerConnection, request: Request) -> Response | None:
    if request.headers.get("Authorization") != "Bearer " + os.environ["BERTH_PORT_SECRET"]:
        return connection.respond(HTTPStatus.UNAUTHORIZED, "who are you?")
    if "Upgrade" in request.headers:
        return None
    return connection.respond(HTTPStatus.OK, f"desk in run {os.environ['BERTH_RUN']}")


async def echo(connection: ServerConnection) -> None:
    async for message in connection:
        await connection.send(f"you said {message!s}")


async def main() -> None:
    host, port = os.environ["BERTH_HOST"], int(os.environ["BERTH_PORT_LAB"])
    async with serve(echo, host, port, process_request=check_request):
        print("ready", flush=True)
        await asyncio.Future()


if __name__ == "__main__":
    asyncio.run(main())
