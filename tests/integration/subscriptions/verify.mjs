// Verifies signatures of webhooks with node:crypto alone: reads cases from stdin, prints verdicts.
import { createHash, createPublicKey, verify } from "node:crypto";
import { readFileSync } from "node:fs";

const { jwks, cases } = JSON.parse(readFileSync(0, "utf8"));

function isSigned({ header, body }) {
  const match = /^t=([0-9]+),kid=([A-Za-z0-9_-]+),ed25519=([A-Za-z0-9_-]{86})$/.exec(header);
  const jwk = jwks.keys.find((key) => key.kid === match?.[2]);
  if (!jwk) return false;
  const key = createPublicKey({ key: jwk, format: "jwk" });
  const signed = Buffer.concat([Buffer.from(`${match[1]}.`), Buffer.from(body, "base64")]);
  return verify(null, signed, key, Buffer.from(match[3], "base64url"));
}

const thumbprints = jwks.keys.map(({ crv, kty, x }) =>
  createHash("sha256").update(JSON.stringify({ crv, kty, x })).digest("base64url"),
);
console.log(JSON.stringify({ verdicts: cases.map(isSigned), thumbprints }));
