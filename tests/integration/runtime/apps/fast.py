"""The same runtime, other people's framework."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fastapi import BackgroundTasks, FastAPI, Request, Response
from fastapi.responses import StreamingResponse

log: list[str] = []


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[dict[str, str]]:
    yield {"greeting": "hello"}
    print("FastAPI shut down")


app = FastAPI(lifespan=lifespan)


@app.get("/items/{name:path}")
async def item(name: str, request: Request, response: Response, q: str = "") -> dict[str, Any]:
    response.set_cookie("first", "1")
    response.set_cookie("second", "2")
    base_url = str(request.base_url)
    return {"name": name, "q": q, "greeting": request.state.greeting, "base_url": base_url}


@app.post("/upload")
async def upload(request: Request) -> dict[str, int]:
    return {"bytes": sum([len(piece) async for piece in request.stream()])}


@app.get("/events")
async def events(seen: Path) -> StreamingResponse:
    """After each event it waits for a file that says that the event has arrived."""

    async def stream() -> AsyncIterator[bytes]:
        for number in range(4):
            yield b"data: %d\n\n" % number
            while not (seen / str(number)).exists():  # noqa: ASYNC110 - a file
                await asyncio.sleep(0.01)

    return StreamingResponse(stream(), media_type="text/event-stream")


@app.get("/forever")
async def forever() -> StreamingResponse:
    async def stream() -> AsyncIterator[bytes]:
        try:
            yield b"data: begin\n\n"
            await asyncio.sleep(60)
        finally:
            log.append("cleaned up")

    return StreamingResponse(stream(), media_type="text/event-stream")


@app.get("/background")
async def background(tasks: BackgroundTasks) -> str:
    async def work() -> None:
        await asyncio.sleep(0.2)
        log.append("worked")

    tasks.add_task(work)
    return "accepted"


@app.get("/breaks")
async def breaks() -> StreamingResponse:
    async def stream() -> AsyncIterator[bytes]:
        yield b"data: begin\n\n"
        raise LookupError("in the generator")

    return StreamingResponse(stream(), media_type="text/event-stream")


@app.get("/log")
async def recall() -> list[str]:
    return log
