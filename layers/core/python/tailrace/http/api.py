"""The FastAPI application: health, the listing, and the documents that describe every route."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import FastAPI, Query
from fastapi.responses import JSONResponse

from tailrace import __version__
from tailrace.http.routes import StreamRoutes
from tailrace.limits import LIST_PAGE
from tailrace.log.expiry import format_instant
from tailrace.settings import Settings
from tailrace.streams import Streams


def build_api(streams: Streams, routes: StreamRoutes, settings: Settings) -> FastAPI:
    api = FastAPI(title="Tailrace", version=__version__)

    @api.get("/health")
    async def health() -> dict[str, str]:
        return {"status": "ok", "version": __version__}

    @api.get("/v1/streams")
    async def list_streams(
        prefix: str = "", after: str = "", limit: Annotated[int, Query(ge=1, le=LIST_PAGE)] = 100
    ) -> dict[str, Any]:
        found = await streams.list(prefix, after, limit + 1)
        page = [
            {
                "path": stream.path,
                "content_type": stream.config.content_type,
                "next_offset": state.next_offset,
                "closed": state.closed,
                "created_at": format_instant(stream.config.created),
                "ttl": stream.config.ttl,
                "expires_at": None
                if stream.config.expires_at is None
                else format_instant(stream.config.expires_at),
            }
            for stream, state in found[:limit]
        ]
        return {"streams": page, "next": page[-1]["path"] if len(found) > limit else None}

    return api
