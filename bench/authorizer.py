"""`python -m bench.authorizer`: measures the CPU time to authorize one request.

Each figure is the median of many rounds. CPU time depends least on other processes.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
import timeit
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from tailrace.auth.authorizer import Authorizer, Operation
from tailrace.auth.credentials import Credentials
from tailrace.auth.signed_names import sign
from tailrace.clock import system_clock
from tailrace.settings import Settings

NUMBER, ROUNDS = 1_000, 25
OLD, NEW = "o" * 64, "n" * 64
CLAIMS = {"sub": "ada", "scope": "read write", "streams": ["users/7/**", "chat/*"]}
PATH = "chat/room-1"


def main() -> None:
    print("| credentials | µs |\n|---|---:|")
    for what, settings, credentials in cases():
        authorizer, now = Authorizer(settings), system_clock()

        def decide(
            authorizer: Authorizer = authorizer,
            credentials: Credentials = credentials,
            now: int = now,
        ) -> object:
            return authorizer.authorize(Operation.READ, PATH, credentials, now)

        decide()
        rounds = timeit.repeat(decide, number=NUMBER, repeat=ROUNDS, timer=time.process_time)
        print(f"| {what} | {statistics.median(rounds) / NUMBER * 1e6:.1f} |")


def cases() -> Iterator[tuple[str, Settings, Credentials]]:
    claims = CLAIMS | {"exp": int(time.time()) + 3600}
    one, two = Settings(secret=OLD), Settings(secret=f"{NEW} {OLD}")
    bearer = Credentials(bearer=jwt.encode(claims, OLD, "HS256"))
    signed = Credentials(signed=sign(PATH, OLD))
    yield "nothing, an open server", Settings(), Credentials()
    yield "nothing, a public stream", Settings(public_streams="chat/*"), Credentials()
    yield "signed name", one, signed
    yield "signed name, two secrets", two, signed
    yield "bearer token, HS256", one, bearer
    yield "bearer token, HS256, two secrets", two, bearer
    identified = Credentials(signed=signed.signed, jid=jwt.encode({"ext": "{}"}, OLD, "HS256"))
    yield "signed name and identification token", one, identified
    kinds: dict[str, Any] = {
        "RS256": rsa.generate_private_key(public_exponent=65537, key_size=2048),
        "ES256": ec.generate_private_key(ec.SECP256R1()),
        "EdDSA": ed25519.Ed25519PrivateKey.generate(),
    }
    with tempfile.TemporaryDirectory() as place:
        for algorithm, private in kinds.items():
            file = Path(place) / algorithm
            file.write_text(json.dumps({"keys": [described(algorithm, private)]}))
            token = jwt.encode(claims, private, algorithm, {"kid": "1"})
            settings = Settings(jwt_algorithm=algorithm, jwks=str(file))
            yield f"bearer token, {algorithm}", settings, Credentials(bearer=token)


def described(algorithm: str, private: Any) -> dict[str, Any]:
    kind: Any = jwt.get_algorithm_by_name(algorithm)
    return {**json.loads(kind.to_jwk(private.public_key())), "kid": "1"}


if __name__ == "__main__":
    main()
