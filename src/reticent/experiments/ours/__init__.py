"""What the documents do not ask: the limit, levels, waves, other rules of reuse, collection at scale."""

__all__: list[str] = []
