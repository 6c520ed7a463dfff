"""Presence: the members of one stream, each with its sessions."""

from __future__ import annotations

from typing import Any

import orjson

from tailrace.limits import CABLE_MEMBER_BYTES, CABLE_PRESENCE_BYTES


def is_own(identity: str, member: str) -> bool:
    """Whether a token that names an identity allows to join under an id: the id has to be the
    identity itself or, if that is a JSON object, one of its values."""
    if member == identity:
        return True
    try:
        claim = orjson.loads(identity)
    except orjson.JSONDecodeError:
        return False
    values = claim.values() if isinstance(claim, dict) else (claim,)
    return any(str(each) == member for each in values if type(each) in (str, int))


def reject_message(member: str) -> str:
    """The answer to a client that may not join under an id."""
    return _text({"id": member, "type": "reject", "reason": "the token does not name this id"})


def join_message(member: str, info: Any) -> str | None:
    """The presence message for a member that joins; None if it would be too large."""
    message = _text({"id": member, "info": info, "type": "join"})
    return message if len(message.encode()) <= CABLE_MEMBER_BYTES else None


class Members:
    """The members of a stream. One may have several sessions, and leaves with the last of them."""

    def __init__(self) -> None:
        self._infos: dict[str, orjson.Fragment] = {}
        """By member, as JSON: parsed values may take fifty times as much memory."""
        self._sessions: dict[str, set[str]] = {}
        self._ids: dict[str, str] = {}
        """The member of each session, which cannot change."""
        self._size = 0

    def __bool__(self) -> bool:
        return bool(self._ids)

    def join(self, sid: str, member: str, info: Any) -> str | None:
        """Add a session of a member; returns the message to send if it is the member's first."""
        if self._ids.get(sid, member) != member:
            return None
        message = None
        if member not in self._infos:
            message = join_message(member, info)
            if message is None or self._size + len(message) > CABLE_PRESENCE_BYTES:
                return None
            self._size += len(message)
            self._infos[member] = orjson.Fragment(_text(info))
        self._ids[sid] = member
        self._sessions.setdefault(member, set()).add(sid)
        return message

    def leave(self, sid: str) -> str | None:
        """Remove a session; returns the message to send if it was the member's last."""
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

    def info(self, *, records: bool = True) -> str:
        """The presence message that counts the members and, with `records`, lists them."""
        message: dict[str, Any] = {"type": "info", "total": len(self._infos)}
        if records:
            message["records"] = [
                {"info": info, "id": member} for member, info in self._infos.items()
            ]
        return _text(message)


def _text(value: object) -> str:
    return orjson.dumps(value).decode()
