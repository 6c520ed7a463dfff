"""uvicorn with a fast lane for stream requests, and its WebSockets with limits."""
