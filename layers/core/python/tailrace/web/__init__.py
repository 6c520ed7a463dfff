"""HTTP for every protocol: requests, responses, errors, limits, ASGI and uvicorn."""
