"""The console's pages and assets as an ASGI application, without a server."""

import asyncio
import gzip
import posixpath
import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import brotli
import pytest
from starlette.datastructures import Headers

from vibemq._version import __version__
from vibemq.web.console.files import STATIC, Asset, read_assets, without_comments
from vibemq.web.console.pages import PAGES
from vibemq.web.console.site import ConsoleSite

ASSET = f"/console/v/{__version__}/parts/frame.js"


@dataclass
class Answer:
    status: int
    headers: Headers
    content: bytes

    @property
    def text(self) -> str:
        return self.content.decode()


class Asked:
    """Requests to an application, decoded as the HTTP server decodes them: once."""

    def __init__(self, app: Any) -> None:
        self._app = app

    def get(self, path: str, **headers: str) -> Answer:
        return self.request("GET", path, **headers)

    def request(self, method: str, path: str, **headers: str) -> Answer:
        told: list[Any] = []

        async def send(message: Any) -> None:
            told.append(message)

        async def receive() -> Any:
            raise AssertionError("a page reads no body")

        raw = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
        scope = {"type": "http", "method": method, "path": unquote(path), "headers": raw}
        asyncio.run(self._app(scope, receive, send))
        return Answer(told[0]["status"], Headers(raw=told[0]["headers"]), told[1]["body"])


@pytest.fixture
def site() -> Asked:
    return Asked(ConsoleSite())


def test_every_page_is_there_with_its_module_and_the_strictest_policy(site: Asked) -> None:
    assets = read_assets()
    for page in PAGES:
        answer = site.get(f"/console/{page.path}")
        assert answer.status == 200
        assert f"pages/{page.module}.js" in answer.text
        assert f"pages/{page.module}.js" in assets
        _check_policy(answer)


def _check_policy(answer: Answer) -> None:
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "require-trusted-types-for 'script'; trusted-types 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    for word in ("unsafe", "data:", "blob:", "*"):
        assert word not in policy
    assert answer.headers["x-frame-options"] == "DENY"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "no-referrer"


def test_what_a_page_names_is_there(site: Asked) -> None:
    for page in PAGES:
        for url in re.findall(r'(?:src|href)="([^"]+)"', site.get(f"/console/{page.path}").text):
            assert url.startswith("./")
            assert site.get(f"/console/{url.removeprefix('./')}").status == 200


def test_a_page_is_asked_for_anew_each_time_and_told_apart_by_its_etag(site: Asked) -> None:
    first = site.get("/console/queues")
    assert first.headers["cache-control"] == "no-cache"
    second = site.get("/console/queues", if_none_match=first.headers["etag"])
    assert (second.status, second.content) == (304, b"")
    assert site.get("/console/queues", if_none_match='"other"').status == 200


def test_an_asset_is_kept_for_ever_and_only_under_this_version(site: Asked) -> None:
    assert site.get(ASSET).headers["cache-control"] == "public, max-age=31536000, immutable"
    assert site.get(ASSET.replace(__version__, "0.0.1")).status == 404


@pytest.mark.parametrize("encoding", ["br", "gzip"])
def test_an_asset_is_compressed_as_the_browser_wants_it(site: Asked, encoding: str) -> None:
    plain = site.get(ASSET, accept_encoding="identity")
    packed = site.get(ASSET, accept_encoding=encoding)
    assert packed.headers["content-encoding"] == encoding
    assert int(packed.headers["content-length"]) < len(plain.content)
    unpacked = brotli.decompress(packed.content) if encoding == "br" else gzip.decompress(packed.content)
    assert unpacked == plain.content
    assert "content-encoding" not in plain.headers


def test_without_its_last_slash_the_console_is_elsewhere(site: Asked) -> None:
    answer = site.get("/console")
    assert (answer.status, answer.headers["location"]) == (303, "./console/")
    root = site.get("/")
    assert (root.status, root.headers["location"], root.content) == (303, "./console/", b"")
    assert site.request("OPTIONS", "/").status == 303, "as load balancers ask"
    assert site.get("//console").status == 404


@pytest.mark.parametrize(
    "path",
    [
        "/console/../../pyproject.toml",
        "/console/..%2f..%2fpages.py",
        "/console/%2e%2e/site.py",
        f"/console/v/{__version__}/../../site.py",
        f"/console/v/{__version__}/..%2f..%2fsite.py",
        f"/console/v/{__version__}/%2e%2e%2f%2e%2e%2fsite.py",
        f"/console/v/{__version__}/..%5c..%5csite.py",
        f"/console/v/{__version__}/%252e%252e/site.py",
        f"/console/v/{__version__}//etc/passwd",
        f"/console/v/{__version__}/parts/frame.js%00.css",
        f"/console/v/{__version__}/page.html",
        f"/console/v/{__version__}/",
        "/console/v/",
        "/console/page.html",
        "/console/nothing",
    ],
)
def test_nothing_but_pages_and_assets_is_served(site: Asked, path: str) -> None:
    answer = site.get(path)
    assert answer.status == 404
    assert "No such page" in answer.text
    _check_policy(answer)


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH"])
def test_pages_can_only_be_read(site: Asked, method: str) -> None:
    answer = site.request(method, "/console/queues")
    assert (answer.status, answer.headers["allow"], answer.content) == (405, "GET, HEAD", b"")


def test_a_head_has_the_headers_of_a_get(site: Asked) -> None:
    got, head = site.get("/console/queues"), site.request("HEAD", "/console/queues")
    assert head.content == b""
    assert head.headers == got.headers


def test_a_broker_that_is_open_to_all_closes_its_console_where_its_api_is_closed() -> None:
    def refusal(headers: Headers) -> tuple[int, str] | None:
        return (421, f"not {headers['host']}") if headers["host"] != "localhost" else None

    site = ConsoleSite()
    site.refusal = refusal
    client = Asked(site)
    plain = client.get("/console/", host="<i>.example")
    assert (plain.status, plain.text) == (421, "not <i>.example\n")
    assert plain.headers["content-type"] == "text/plain; charset=utf-8"
    _check_policy(plain)
    answer = client.get("/console/", host="<i>.example", accept="text/html,*/*;q=0.8")
    assert answer.status == 421
    assert "<h1>The console is closed</h1>\n<p>not &lt;i&gt;.example</p>" in answer.text
    _check_policy(answer)
    assert client.request("HEAD", "/console/", host="evil.example").content == b""
    assert client.get("/console/", host="localhost").status == 200


def test_lines_that_are_comments_are_served_empty_and_nothing_else_is() -> None:
    gone = 0
    for name, asset in read_assets().items():
        source = (STATIC / name).read_bytes().split(b"\n")
        for line, served in zip(source, asset.content.split(b"\n"), strict=True):
            if line != served:
                gone += 1
                assert not served
                assert re.match(rb"\s*(//|/?\*|.*\*/$)", line), (name, line)
                assert not name.startswith("vendor/")
    assert gone > 300


@pytest.mark.parametrize(
    ("source", "served"),
    [
        (b"a; // kept\n  // gone\nb;\n", b"a; // kept\n\nb;\n"),
        (b"/** one\n * two */\nf(/* kept */);\n/* a */ g();\n", b"\n\nf(/* kept */);\n/* a */ g();\n"),
        (b"/* one */ a; /* two */\n", b"/* one */ a; /* two */\n"),
        (b"const url = `https://x`;\n", b"const url = `https://x`;\n"),
    ],
)
def test_only_whole_lines_go(source: bytes, served: bytes) -> None:
    assert without_comments(source) == served


def test_a_page_is_fetched_with_few_bytes_and_the_wheel_grows_little() -> None:
    assets = read_assets()
    styles = sum(len(asset.encoded("br")[1]) for name, asset in assets.items() if name.startswith("style/"))
    for page in PAGES:
        modules = _with_imports(f"pages/{page.module}.js", assets, set())
        # The library of the charts comes behind the page.
        size = sum(len(assets[name].encoded("br")[1]) for name in modules) + styles
        assert size < (48 if page.path == "" else 64) * 1024, f"{page.module}: {size}"
    own = (asset for name, asset in assets.items() if name.endswith((".js", ".css")) and not name.startswith("vendor/"))
    assert sum(len(asset.encoded("br")[1]) for asset in own) <= 120 * 1024
    vendored = [path for path in (STATIC / "vendor").iterdir() if path.suffix in (".js", ".css")]
    assert sum(path.stat().st_size for path in vendored) < 80 * 1024
    assert sum(len(asset.encoded("gzip")[1]) for asset in assets.values()) < 300 * 1024


def _with_imports(name: str, assets: dict[str, Asset], seen: set[str]) -> set[str]:
    if name not in seen:
        seen.add(name)
        for imported in re.findall(r'(?:from|^import) "([^"]+)"', assets[name].content.decode(), re.MULTILINE):
            _with_imports(posixpath.normpath(posixpath.join(posixpath.dirname(name), imported)), assets, seen)
    return seen
