"""Examples of answers for the OpenAPI description: those of a run on the bundled graph, with short lists."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

EXAMPLES: dict[str, Any] = json.loads(Path(__file__).with_name("examples.json").read_text(encoding="utf-8"))
ERROR = {"error": {"code": "unknown_name", "message": "no entity is named 'Frnace'", "suggestions": ["France"]}}
