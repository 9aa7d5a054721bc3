"""What every verb that writes does first: complete what a kill left unfinished."""

from __future__ import annotations

from metamori.runtime.finish import finish_if_needed, require_over

__all__ = ["finish_if_needed", "require_over"]
