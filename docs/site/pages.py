"""What the site adds to the pages of docs: README, changes and other texts of the root, and the notebooks.

mkdocs calls the functions with `on_` in their names. Links keep working on both sides: from docs to the root
and back, and what is no page (tests, sources) is said without a link, since the site does not know where the
repository is.
"""

import json
import re
from pathlib import Path
from posixpath import dirname, join, normpath, relpath

from mkdocs.structure.files import File

ROOT = Path(__file__).parents[2]
TEXTS = {f"{name}.md" for name in ("README", "CHANGELOG", "CONTRIBUTING", "SECURITY")}
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\(([^)\s#:]*)(#[^)\s]*)?\)")


def markdown(notebook):
    """The cells of a notebook as a page."""
    cells = []
    for cell in notebook["cells"]:
        text = "".join(cell["source"])
        cells.append(text if cell["cell_type"] == "markdown" else f"```python\n{text}\n```")
    return "\n\n".join(cells) + "\n"


def relinked(text, page, pages):
    """The text of the page that lies at `page` of the repository, with links as they are on the site."""
    here = place_of(page)

    def link(found):
        image, said, path, anchor = found.groups()
        if not path:
            return found[0]
        target = place_of(normpath(join(dirname(page), path)))
        if target not in pages:
            return said
        return f"{image}[{said}]({relpath(target, dirname(here) or '.')}{anchor or ''})"

    return LINK.sub(link, text)


def place_of(path):
    """Where a file of the repository lies on the site."""
    return path.removeprefix("docs/").replace(".ipynb", ".md")


def on_files(files, config):
    """Add what does not lie in docs, or is no Markdown there."""
    for name in sorted(TEXTS):
        text = (ROOT / name).read_text(encoding="utf-8")
        files.append(File.generated(config, name, content=text))
    for path in sorted((ROOT / "docs" / "notebooks").glob("*.ipynb")):
        text = markdown(json.loads(path.read_text(encoding="utf-8")))
        files.append(File.generated(config, f"notebooks/{path.stem}.md", content=text))
    return files


def on_page_markdown(text, page, config, files):
    """Turn links of the repository into links of the site."""
    place = page.file.src_uri
    shown = {file.src_uri for file in files if file.inclusion.is_included()}
    return relinked(text, place if place in TEXTS else f"docs/{place}", shown)
