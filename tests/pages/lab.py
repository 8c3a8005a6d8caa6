#!/usr/bin/env python3
"""The lab's report and a comparison in a real browser: all there, legible, inside the view, on a desktop and on a phone.

usage: lab.py PATH/TO/meridian [DIRECTORY FOR SCREENSHOTS]
"""

import pathlib
import shutil
import subprocess
import sys
import tempfile

from playwright.sync_api import sync_playwright

MERIDIAN = sys.argv[1] if len(sys.argv) in (2, 3) else sys.exit(__doc__)
SHOTS = pathlib.Path(sys.argv[2]) if len(sys.argv) == 3 else None
VIEWS = [({"width": 1280, "height": 800}, "light"), ({"width": 390, "height": 844}, "dark")]

# Runs in the page and says what is wrong with it.
INSPECT = r"""
() => {
  const wrong = [];
  const root = document.documentElement;
  if (root.scrollWidth > innerWidth) wrong.push(`the page is ${root.scrollWidth} wide in a view of ${innerWidth}`);
  if (document.querySelector('script, img, iframe, object, link')) wrong.push('there is an element that has no business here');
  for (const svg of document.querySelectorAll('.plot svg')) {
    const box = svg.getBoundingClientRect(), figure = svg.closest('figure').getBoundingClientRect();
    if (box.width < 250 || box.height < 150) wrong.push(`a plot of ${box.width} x ${box.height}`);
    if (box.left < figure.left || box.right > figure.right + 1) wrong.push('a plot leaves its figure');
    const size = parseFloat(svg.querySelector('text').getAttribute('font-size')) * box.width / svg.viewBox.baseVal.width;
    if (size < 8) wrong.push(`text of ${size} pixels in a plot`);
    if (svg.querySelectorAll('polyline, path, circle, rect').length < 4) wrong.push('a plot shows nothing');
  }
  const channels = colour => colour.match(/[\d.]+/g).slice(0, 3).map(Number);
  const light = colour => channels(colour).map(v => v / 255).map(v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0);
  const contrast = (a, b) => { const [x, y] = [light(a), light(b)].sort((m, n) => m - n); return (y + .05) / (x + .05); };
  const page = getComputedStyle(document.body).backgroundColor;
  for (const e of document.querySelectorAll('p, td, th, li, p span'))
    if (!e.closest('figure') && contrast(getComputedStyle(e).color, page) < 4.5) wrong.push(`pale: ${e.textContent.slice(0, 40)}`);
  return wrong;
}
"""


def meridian(*arguments):
    """Runs the command; what it exits with and prints."""
    done = subprocess.run([MERIDIAN, "lab", *arguments], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, f"{arguments}: {done.returncode}: {done.stdout}{done.stderr}"
    return done.stdout


def look(browser, path, view, scheme, figures):
    """Opens a page as one kind of reader sees it, and checks what is there."""
    context = browser.new_context(viewport=view, color_scheme=scheme, device_scale_factor=2 if view["width"] < 500 else 1)
    page = context.new_page()
    noise, requests = [], []
    page.on("console", lambda message: noise.append(message.text))
    page.on("pageerror", lambda error: noise.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    page.goto(path.as_uri())
    if SHOTS:
        SHOTS.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=SHOTS / f"lab-{path.stem}-{view['width']}.png", full_page=True)
    assert page.locator(".plot svg").count() >= figures, page.locator(".plot svg").count()
    styles = page.locator("figure").first.locator(".swatch line").evaluate_all(
        "lines => lines.map(l => l.getAttribute('stroke') + l.getAttribute('stroke-dasharray'))"
    ) if page.locator("figure .swatch").count() else []
    assert len(styles) == len(set(styles)), styles
    wrong = page.evaluate(INSPECT)
    assert not wrong, "\n".join(wrong)
    assert not noise, noise
    assert requests == [path.as_uri()], f"the page asks for more than itself: {requests}"
    context.close()


def main():
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    with tempfile.TemporaryDirectory() as directory, sync_playwright() as playwright:
        out = pathlib.Path(directory)
        told = meridian("run", "gryff-8", "--quick", "--out", directory)
        assert "reproduced within" in told and told.count("\n") >= 4, told
        assert meridian("report", "--out", directory).strip().endswith("report.html")
        costs = meridian("compare", "--regions", "eastus,westeurope,japaneast", "--mix", "90:9:1", "--seconds", "10", "--out", directory)
        assert len(costs.splitlines()) == 1 + 4 * 3 + 1, costs
        browser = playwright.chromium.launch(executable_path=chromium)
        for view, scheme in VIEWS:
            look(browser, out / "report.html", view, scheme, 6)
            look(browser, out / "compare.html", view, scheme, 3)
        browser.close()
    print("2 passed, 0 failed")


if __name__ == "__main__":
    main()
