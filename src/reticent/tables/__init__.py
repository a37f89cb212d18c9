"""Tables as people keep them: what a cell says and where a record ends, whatever wrote or stores the file."""

__all__: list[str] = []
