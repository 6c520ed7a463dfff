"""Who is there: the members of one stream, each with the sessions that it came with."""

from __future__ import annotations

from typing import Any

import orjson

from tailrace.limits import CABLE_MEMBER_BYTES, CABLE_PRESENCE_BYTES


def is_own(identity: str, member: str) -> bool:
    """Whether a token that names an identity allows to be there under an id: it is the identity
    itself, or one of its values where that is a JSON object."""
    if member == identity:
        return True
    try:
        named = orjson.loads(identity)
    except orjson.JSONDecodeError:
        return False
    values = named.values() if isinstance(named, dict) else (named,)
    return any(str(each) == member for each in values if type(each) in (str, int))


def rejected(member: str) -> str:
    """The answer to a client that may not be there under an id."""
    return _text({"id": member, "type": "reject", "reason": "the token does not name this id"})


def joined(member: str, info: Any) -> str | None:
    """What everybody is told of one who comes; None: nobody can be told so much."""
    news = _text({"id": member, "info": info, "type": "join"})
    return news if len(news.encode()) <= CABLE_MEMBER_BYTES else None


class Members:
    """One member may have several sessions; it is there until the last of them has left."""

    def __init__(self) -> None:
        self._infos: dict[str, orjson.Fragment] = {}
        """As JSON: parsed it may take fifty times as much memory."""
        self._sessions: dict[str, set[str]] = {}
        self._ids: dict[str, str] = {}
        """Who each session is; it cannot become somebody else."""
        self._size = 0

    def __bool__(self) -> bool:
        return bool(self._ids)

    def join(self, sid: str, member: str, info: Any) -> str | None:
        """What to tell everybody, if it is news."""
        if self._ids.get(sid, member) != member:
            return None
        news = None
        if member not in self._infos:
            news = joined(member, info)
            if news is None or self._size + len(news) > CABLE_PRESENCE_BYTES:
                return None
            self._size += len(news)
            self._infos[member] = orjson.Fragment(orjson.dumps(info))
        self._ids[sid] = member
        self._sessions.setdefault(member, set()).add(sid)
        return news

    def leave(self, sid: str) -> str | None:
        """What to tell everybody, if nothing of the member is left."""
        member = self._ids.pop(sid, None)
        if member is None:
            return None
        sessions = self._sessions[member]
        sessions.discard(sid)
        if sessions:
            return None
        info = self._infos.pop(member)
        del self._sessions[member]
        self._size -= len(_text({"id": member, "info": info, "type": "join"}))
        return _text({"id": member, "type": "leave"})

    def listed(self, *, records: bool = True) -> str:
        """The answer to who asks."""
        answer: dict[str, Any] = {"type": "info", "total": len(self._infos)}
        if records:
            answer["records"] = [{"info": info, "id": each} for each, info in self._infos.items()]
        return _text(answer)


def _text(value: object) -> str:
    return orjson.dumps(value).decode()
