"""A real browser without a window, where there is one."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from html import unescape

import pytest

from tests.support.children import HUNG

_NAMES = ("chromium", "chromium-headless-shell", "google-chrome", "chrome-headless-shell")
BROWSER = next(filter(None, map(shutil.which, _NAMES)), None)

needs_browser = pytest.mark.skipif(BROWSER is None, reason=f"there is none of {', '.join(_NAMES)}")

_QUIET = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--hide-scrollbars",
)  # fmt: skip


def opened(path, folder, *options):
    """The browser's result for a page: the document after loading, and its console.

    Args:
        path: the page.
        folder: for the browser's own files.
        options: more of them.
    """
    shown = subprocess.run(
        [BROWSER, *_QUIET, f"--user-data-dir={folder}", "--enable-logging=stderr", "--v=0",
         *options, "--dump-dom", path.as_uri()],
        capture_output=True, text=True, timeout=HUNG, check=True,
    )  # fmt: skip
    return shown.stdout, [line for line in shown.stderr.splitlines() if ":CONSOLE" in line]


#: Looks at every text of every drawing: is it within it, does it lie on another text.
_MEASURE = """<script>
const found = [];
for (const drawing of document.querySelectorAll("svg")) {
  const frame = drawing.getBoundingClientRect();
  const texts = [...drawing.querySelectorAll("text")].map(t => [t, t.getBoundingClientRect()]);
  texts.forEach(([one, a], i) => {
    if (a.left < frame.left - 1 || a.right > frame.right + 1 ||
        a.top < frame.top - 1 || a.bottom > frame.bottom + 1)
      found.push("cut: " + one.textContent);
    for (const [other, b] of texts.slice(i + 1))
      if (a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 4 &&
          b.top < a.bottom - 4)
        found.push(one.textContent + " lies on " + other.textContent);
  });
}
const wide = document.documentElement;
if (wide.scrollWidth > wide.clientWidth + 1) found.push("the page is wider than the window");
const said = document.createElement("pre");
said.id = "measured";
said.textContent = JSON.stringify([document.querySelectorAll("svg text").length, found]);
document.body.append(said);
</script></body>"""


def misplaced(page, folder):
    """How many texts the drawings of a page have, and which are cut off or lie on others.

    Args:
        page: its text; the copy that is opened has a script and no content security policy.
        folder: for files.
    """
    page = re.sub(r"<meta http-equiv[^>]*>", "", page)
    path = folder / "measured.html"
    path.write_text(page.replace("</body>", _MEASURE), encoding="utf-8")
    document, _ = opened(path, folder / "profile", "--window-size=1100,900")
    return json.loads(unescape(re.search(r'<pre id="measured">(.*?)</pre>', document, re.S)[1]))
