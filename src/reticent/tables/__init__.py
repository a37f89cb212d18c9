"""Tables as people keep them: the meaning of a cell and the end of a record, however the file is stored."""

__all__: list[str] = []
