"""Draw the gallery: run every script of this folder, photograph what it makes, write README.md.

python docs/gallery/build.py                    everything
python docs/gallery/build.py k_explorer         only this picture, and README.md

A script's docstring is its title and a line about it; it ends with `figure` or `widget`.
"""

from __future__ import annotations

import ast
import runpy
import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

HERE = Path(__file__).parent
LARGEST = 40_000  # bytes of a thumbnail
SHOWN = 400  # its width in README.md
WIDTH, TALLEST = 800, 600
CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)


def scripts() -> list[Path]:
    """The scripts of the gallery, widgets first."""
    found = [path for path in HERE.glob("*.py") if path != Path(__file__)]
    return sorted(found, key=lambda path: (path.stem.startswith("plot_"), path.stem))


def said(script: Path) -> tuple[str, str]:
    """Title and line of a script."""
    title, _, line = (ast.get_docstring(ast.parse(script.read_text())) or "").partition("\n\n")
    return title, line


def page_of(script: Path) -> str:
    """What a script makes, as a page of its own."""
    made = runpy.run_path(str(script))
    if "widget" in made:
        return str(made["widget"].to_html())
    figure = made["figure"]
    height = f"{figure.layout.height}px"
    config = {"displayModeBar": False}
    return str(figure.to_html(include_plotlyjs=True, config=config, default_height=height))


def photograph(browser: Any, page_file: Path, picture: Path) -> None:
    """A thumbnail of a page, as sharp as its size allows."""
    for scale in (0.8, 0.7, 0.6, 0.5, 0.4):
        page = browser.new_page(
            viewport={"width": WIDTH, "height": TALLEST}, device_scale_factor=scale
        )
        page.goto(page_file.as_uri())
        page.wait_for_timeout(500)  # plotly draws after load
        height = page.evaluate(
            "Math.ceil(Math.max(...Array.from(document.body.children,"
            " (part) => part.getBoundingClientRect().bottom)))"
        )
        clip = {"x": 0, "y": 0, "width": WIDTH, "height": min(height, TALLEST)}
        data = page.screenshot(clip=clip)
        page.close()
        if len(data) < LARGEST:
            break
    picture.write_bytes(data)


def readme() -> str:
    """The table of everything."""
    lines = [
        "# Gallery",
        "",
        "Every widget and every figure of specviz, each from a short script on captures that come",
        "with it. `build.py` runs the scripts and makes the thumbnails. How the widgets feel in",
        "the hand is in [the tour](../../notebooks/06_widgets_tour.ipynb).",
    ]
    for heading, figures in (("Widgets", False), ("Figures", True)):
        lines += ["", f"## {heading}", "", "| | |", "|---|---|"]
        for script in scripts():
            if script.stem.startswith("plot_") == figures:
                title, line = said(script)
                picture = f'<img src="{script.stem}.png" alt="{title}" width="{SHOWN}">'
                lines.append(
                    f"| {picture} | **{title}**<br>{line}<br>[{script.name}]({script.name}) |"
                )
    return "\n".join(lines) + "\n"


def main(names: list[str]) -> None:
    known = {script.stem: script for script in scripts()}
    for name in names:
        if name not in known:
            sys.exit(f"There is no script {name}.py here; there are {', '.join(known)}.")
    (HERE / "README.md").write_text(readme(), encoding="utf-8")
    if CHROMIUM is None:
        sys.exit("No thumbnails: there is no chromium on this machine. Install it and run again.")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        sys.exit("No thumbnails: playwright is not installed. pip install playwright")
    with TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"]
        )
        page_file = Path(folder, "page.html")
        for script in [known[name] for name in names] or known.values():
            page_file.write_text(page_of(script), encoding="utf-8")
            picture = script.with_suffix(".png")
            photograph(browser, page_file, picture)
            print(f"{picture.name}: {picture.stat().st_size / 1000:.0f} kB")
        browser.close()


if __name__ == "__main__":
    main(sys.argv[1:])
