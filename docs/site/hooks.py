"""mkdocs hooks: files of the repository that lie outside `docs/` become pages of the site, and links follow.

In the repository a link is written so that it works there (`../results/uci.md`, `docs/novi.md`). On the site
README.md is the first page and `results/` a folder, so each link is resolved in the repository and then
written anew for the page that it stands on.

A script of `examples/` becomes a page: its markdown cells are the text, and what it printed and drew
(`make examples` keeps that) follows its last cell of code.
"""

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
COPIED = {"README.md": "index.md", "CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md"}
COPIED |= {f"results/{path.name}": f"results/{path.name}" for path in (ROOT / "results").glob("*.md")}
COPIED |= {
    f"examples/pictures/{p.name}": f"examples/pictures/{p.name}" for p in ROOT.glob("examples/pictures/*.png")
}
SCRIPTS = {
    f"examples/{p.stem}.py": f"examples/{p.stem}.md" for p in ROOT.glob("examples/*.py") if p.stem != "draw"
}
OUTSIDE = COPIED | SCRIPTS
ORIGIN = {page: source for source, page in OUTSIDE.items()}

LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)\s#]+)(?=[)#])")
CELL = re.compile(r"^# %%(.*)\n", re.MULTILINE)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages whose text lies outside `docs/`."""
    for source, page in COPIED.items():
        files.append(File.generated(config, page, abs_src_path=str(ROOT / source)))
    for source, page in SCRIPTS.items():
        files.append(File.generated(config, page, content=script_page(ROOT / source)))
    return files


def script_page(path: Path) -> str:
    """A percent script as a page."""
    _, *parts = CELL.split(path.read_text())
    cells = []
    for kind, body in zip(parts[::2], parts[1::2], strict=True):
        if "[markdown]" in kind:
            cells.append(re.sub(r"^# ?", "", body.strip(), flags=re.MULTILINE))
        else:
            cells.append(f"```python\n{body.strip()}\n```")
            last_code = len(cells)
    printed = (path.parent / "pictures" / f"{path.stem}.txt").read_text().rstrip()
    shown = f"It prints:\n\n```text\n{printed}\n```\n\n![What the example draws](pictures/{path.stem}.png)"
    cells.insert(last_code, shown)
    cells.append(f"The script is `examples/{path.name}` in the repository.")
    return "\n\n".join(cells) + "\n"


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Rewrite the links of a page for the place that it has on the site."""
    here = page.file.src_uri
    folder = posixpath.dirname(ORIGIN.get(here, f"docs/{here}"))

    def rewritten(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(folder, match[1]))
        target = OUTSIDE.get(target, target.removeprefix("docs/"))
        return posixpath.relpath(target, posixpath.dirname(here) or ".")

    return LINK.sub(rewritten, markdown)
