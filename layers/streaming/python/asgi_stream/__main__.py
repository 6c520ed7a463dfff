from __future__ import annotations

from asgi_stream.runtime import main

raise SystemExit(main())
