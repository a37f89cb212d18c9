"""The pages of data sets: look and ask (`main`), answers again (`answers`), the owners' pages (`owners`)."""

from reticent.apps.query.pages.main import router

__all__ = ["router"]
