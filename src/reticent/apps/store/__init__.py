"""Content by its hash: identifiers, putting, getting, serving."""

__all__: list[str] = []
