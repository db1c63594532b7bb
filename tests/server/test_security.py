"""Who may ask, and what every answer tells the browser."""

from __future__ import annotations

import re
import socket
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from cotransport.errors import ConfigError
from cotransport.server.app import ROUTES, make_app
from cotransport.server.pages import documentation, page
from cotransport.server.process import serve
from cotransport.server.security import PAGE, PUBLIC, Hosts, check_token, new_token
from tests.server.helpers import BEARER, TOKEN

PROTECTED = [(method, path) for method, path, _ in ROUTES if path not in {*PUBLIC, PAGE}]


@pytest.mark.parametrize("given", [None, "Bearer", "Bearer wrong", f"Basic {TOKEN}", f"Bearer {TOKEN}x", "Bearer \xff"])
def test_every_route_but_the_public_ones_needs_the_token(empty: TestClient, given: str | None) -> None:
    del empty.headers["Authorization"]
    headers = {} if given is None else {"Authorization": given.encode("latin-1")}
    for method, path in PROTECTED:
        answer = empty.request(method, path, headers=headers)  # type: ignore[arg-type]
        assert answer.status_code == 401, path
        assert "token" in answer.json()["error"]
    assert empty.get("/health").json()["status"] == "ok"


def test_the_token_is_not_taken_from_the_address_except_by_the_page(empty: TestClient) -> None:
    del empty.headers["Authorization"]
    assert empty.get(f"/api/classes?token={TOKEN}").status_code == 401
    assert empty.get(f"/?token={TOKEN}").status_code == 200
    without = empty.get("/")
    assert without.status_code == 401
    assert without.text == empty.get(f"/?token={TOKEN}").text  # it holds nothing that needs a token
    assert empty.get("/?token=wrong").status_code == 401


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "127.0.0.1:8000@evil.example", "", "a b"])
def test_other_names_of_the_server_are_refused(empty: TestClient, host: str) -> None:
    for method, path in [*PROTECTED, ("GET", "/"), ("GET", "/health")]:
        assert empty.request(method, path, headers={"Host": host}).status_code == 403, path


@pytest.mark.parametrize("host", ["127.0.0.1:8000", "localhost:9999", "[::1]:8000", "LOCALHOST"])
def test_names_of_this_machine_are_accepted_with_any_port(empty: TestClient, host: str) -> None:
    assert empty.get("/api/classes", headers={"Host": host}).status_code == 200


def test_a_server_for_other_machines_answers_to_addresses_in_numbers_and_its_own_names() -> None:
    everywhere, named = Hosts("0.0.0.0"), Hosts("models.example")
    assert all(everywhere.allow(host) for host in ("192.168.1.5:8000", "10.0.0.1", "localhost", "[fe80::1]:80"))
    assert not everywhere.allow("evil.example")
    assert named.allow("models.example:8000")
    assert not named.allow("other.example")


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "http://127.0.0.1:9999", "null", "http://localhost:8000", ""]
)
def test_pages_of_other_origins_cannot_change_anything(empty: TestClient, origin: str) -> None:
    for method, path in PROTECTED:
        if method != "GET":
            assert empty.request(method, path, headers={"Origin": origin}).status_code == 403, path


def test_our_own_page_can(client: TestClient) -> None:
    answer = client.post("/api/rollback", headers={"Origin": "http://127.0.0.1:8000"})
    assert answer.json() == {"before": 2, "current": 1}


def test_a_proxy_in_front_is_allowed_by_its_name(tmp_path: Path) -> None:
    hosts = Hosts("127.0.0.1", frozenset({"teach.example"}))
    with TestClient(
        make_app(tmp_path / "new", TOKEN, hosts), base_url="http://127.0.0.1:8000", headers=BEARER
    ) as client:

        def status(host: str, origin: str) -> int:
            return client.post("/api/rollback", headers={"Host": host, "Origin": origin}).status_code

        passed = 409  # there is no model yet
        assert status("teach.example", "https://teach.example") == passed
        assert status("127.0.0.1:8000", "https://teach.example") == passed  # the proxy has replaced the Host header
        assert status("teach.example", "https://teach.example:8443") == passed
        assert status("127.0.0.1:8000", "https://evil.example") == 403
        assert status("127.0.0.1:8000", "https://teach.example.evil.example") == 403
        assert status("evil.example", "https://teach.example") == 403


@pytest.mark.parametrize("name", ["https://teach.example", "teach.example:80", "a b", "", "*"])
def test_an_allowed_name_is_a_name_alone(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="--allow-host"):
        serve(tmp_path / "model", "127.0.0.1", 0, None, lambda _: None, [name])


def test_the_printed_address_can_be_opened_on_other_machines() -> None:
    assert Hosts("0.0.0.0").shown == Hosts("::").shown == socket.gethostname()
    assert Hosts("0.0.0.0").allow(socket.gethostname())
    assert [Hosts(host).shown for host in ("10.0.0.1", "::1", "birds.lan")] == ["10.0.0.1", "[::1]", "birds.lan"]


def test_no_answer_can_be_framed_sniffed_stored_or_run_foreign_scripts(empty: TestClient) -> None:
    answers = [empty.get(path) for path in ("/", "/docs", "/api/classes", "/nowhere", "/page.js")]
    answers += [
        empty.get("/", headers={"Host": "evil.example"}),
        empty.get("/api/classes", headers={"Authorization": ""}),
    ]
    for answer in answers:
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert "access-control-allow-origin" not in answer.headers
        assert "set-cookie" not in answer.headers


def test_the_pages_have_no_inline_script_or_style_and_load_nothing_from_elsewhere() -> None:
    for html in (page(), documentation()):
        assert not re.search(r"<style|\sstyle=|\son\w+=|javascript:", html)
        assert re.findall(r"<script[^>]*>(.*?)</script>", html, re.DOTALL) in ([""], [])
        addresses = re.findall(r"(?:src|href)=\"([^\"]*)\"", html)
        assert not [address for address in addresses if "//" in address]


def test_the_pages_script_writes_no_html() -> None:
    script = (Path(__file__).parents[2] / "src/cotransport/server/page.js").read_text(encoding="utf-8")
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", script)


def test_an_address_for_other_machines_needs_a_token(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"--host 0\.0\.0\.0: .*--token"):
        serve(tmp_path / "model", "0.0.0.0", 0, None, lambda _: None)
    with pytest.raises(ConfigError, match="--token: other machines can reach the server"):
        serve(tmp_path / "model", "0.0.0.0", 0, "short", lambda _: None)
    with pytest.raises(ConfigError, match="--token: other machines can reach the server"):
        serve(tmp_path / "model", "127.0.0.1", 0, "short", lambda _: None, ["teach.example"])
    with pytest.raises(ConfigError, match="--token: use only letters"):
        serve(tmp_path / "model", "127.0.0.1", 0, "a b&c", lambda _: None)


def test_random_tokens_are_long_and_differ() -> None:
    tokens = {check_token(new_token(), is_exposed=True) for _ in range(100)}
    assert len(tokens) == 100
    assert min(map(len, tokens)) >= 32


def test_no_answer_names_a_folder_of_the_server(client: TestClient, model: Path) -> None:
    (model / "versions" / "0002" / "weights.safetensors").write_bytes(b"damaged")
    answers = [
        client.post("/api/predict", files={"files": b"x"}),
        client.get("/api/versions"),
        client.post("/api/rollback", json={"to": 77}),
        client.post("/api/rename", json={"name": "class 0", "to": "other"}),
        client.post("/api/rollback", json={"to": 2}),
    ]
    assert answers[0].status_code == 409
    assert "the model/versions/0002/weights.safetensors: damaged" in answers[0].json()["error"]
    for answer in answers:
        assert str(model.parent) not in answer.text
