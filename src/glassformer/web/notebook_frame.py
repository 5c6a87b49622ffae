"""The page as one document for a frame: its styles and scripts are inside, and its requests go to the notebook."""

import json
import re
from base64 import b64encode
from html import escape
from secrets import token_urlsafe

from glassformer.web.explorer.routes import SERVED
from glassformer.web.in_process import LocalClient

REPLACED, REPLACEMENT = "address.js", "frame.js"
"""The script that asks a server, and the one that asks the kernel."""
NOT_IN_THE_PAGE = (REPLACED, REPLACEMENT, "widget.js", "loading.js")
IMPORT = re.compile(r'from "\./([a-z_]+\.js)"')
NAMED = r'from "\1"'
STYLE = re.compile(r'<link rel="stylesheet" href="([^"]+)">')
MAIN = '<script type="module" src="static/main.js"></script>'


def frame_document(client: LocalClient, address: str) -> str:
    """The page of ``address`` as one document with its styles and scripts; it can load nothing else."""

    def fetch(place: str) -> str:
        return client.submit(place, headers={"x-fragment": "whole"})[0].result().body.decode()

    nonce = token_urlsafe(16)
    scripts = {name: file.read_text(encoding="utf-8") for name, file in SERVED.items() if name.endswith(".js")}
    scripts[REPLACED] = scripts[REPLACEMENT]
    modules = {name: _data(text) for name, text in scripts.items() if name not in NOT_IN_THE_PAGE[1:]}
    imports = json.dumps({"imports": modules})
    policy = (
        f"default-src 'none'; script-src 'nonce-{nonce}' data:; style-src 'nonce-{nonce}'; img-src data:; "
        "form-action 'none'; base-uri 'none'"
    )
    page = STYLE.sub(lambda match: f'<style nonce="{nonce}">{fetch(match[1])}</style>', fetch(address))
    page = page.replace(
        MAIN,
        f'<script type="importmap" nonce="{nonce}">{imports}</script>'
        f'<script type="module" nonce="{nonce}">import "main.js";</script>',
    )
    meta = f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
    page = re.sub(r'<link rel="icon"[^>]*>\n', "", page).replace("<head>", f"<head>{meta}", 1)
    return page.replace('<html lang="en"', f'<html lang="en" data-address="{escape(address)}"', 1)


def _data(script: str) -> str:
    """A module as a data address; it imports others by their names, which the import map has."""
    return f"data:text/javascript;base64,{b64encode(IMPORT.sub(NAMED, script).encode()).decode()}"
