"""mkdocs hooks: files of the repository that lie outside `docs/` become pages of the site, and links follow.

In the repository a link is written so that it works there (`../results/uci.md`, `docs/novi.md`). On the site
README.md is the first page and `results/` a folder, so each link is resolved in the repository and then
written anew for the page that it stands on.
"""

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
OUTSIDE = {"README.md": "index.md", "CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md"}
OUTSIDE |= {f"results/{path.name}": f"results/{path.name}" for path in (ROOT / "results").glob("*.md")}
ORIGIN = {page: source for source, page in OUTSIDE.items()}

LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)\s#]+)(?=[)#])")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages whose text lies outside `docs/`."""
    for source, page in OUTSIDE.items():
        files.append(File.generated(config, page, abs_src_path=str(ROOT / source)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Rewrite the links of a page for the place that it has on the site."""
    here = page.file.src_uri
    folder = posixpath.dirname(ORIGIN.get(here, f"docs/{here}"))

    def rewritten(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(folder, match[1]))
        target = OUTSIDE.get(target, target.removeprefix("docs/"))
        return posixpath.relpath(target, posixpath.dirname(here) or ".")

    return LINK.sub(rewritten, markdown)
