"""The console: static pages and modules, which speak to the HTTP API and to nothing else.

`pages` lists the pages, `files` reads what is in `static/`, `site` answers requests. How the pages are made:
docs/adr/0023-the-console-is-static-pages.md and docs/explanation/console.md.
"""
