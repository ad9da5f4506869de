"""HTTP itself: connections, bodies, keys, limits. It knows no API; `server/openai` and others do."""
