"""The query engine as a service: an HTTP API with roles, and pages for people.

`desk` is what the service does for any caller; `api` and `pages` are two ways to ask it. Nothing here decides
about privacy: every answer comes from `query.Session`, which pays before it looks.
"""

__all__: list[str] = []
