"""The language of questions: the closed tree, SQL, conditions, and the form under which noise is kept."""

__all__: list[str] = []
