"""The asyncio client, its calls grouped by subject."""
