"""A file server on loopback that cuts connections and is busy at times; and one that speaks S3 and checks signatures."""

from __future__ import annotations

import hashlib
import re
import ssl
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, unquote
from xml.sax.saxutils import escape

from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

PLAIN = "-_.~"


def make_certificate(folder: Path) -> Path:
    """A self-signed certificate for 127.0.0.1 and its key, in one file."""
    folder.mkdir(exist_ok=True)
    file = folder / "certificate.pem"
    command = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=headrace -addext subjectAltName=IP:127.0.0.1"
    subprocess.run([*command.split(), "-keyout", file, "-out", folder / "only.pem"], check=True, capture_output=True)
    file.write_bytes(file.read_bytes() + (folder / "only.pem").read_bytes())
    return file


class FarServer(ThreadingHTTPServer):
    """Serves `folder`. Every `cut_every`-th reply ends in its middle, every `busy_every`-th is a 503. With `credentials` each
    request must be signed, and `folder` holds buckets."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(
        self,
        folder: Path,
        *,
        cut_every: int = 0,
        busy_every: int = 0,
        certificate: Path | None = None,
        credentials: Credentials | None = None,
        region: str = "us-east-1",
    ) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.folder, self.cut_every, self.busy_every = folder, cut_every, busy_every
        self.credentials, self.region = credentials, region
        self.requests: list[str] = []
        self.connections = 0
        self.refused: list[str] = []
        self.lock = threading.Lock()
        self.stall = threading.Event()
        self.released = threading.Event()
        scheme = "http"
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self.socket = context.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)
            scheme = "https"
        self.url = f"{scheme}://127.0.0.1:{self.server_port}"

    def __enter__(self) -> FarServer:
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return self

    def __exit__(self, *_: Any) -> None:
        self.released.set()
        self.shutdown()
        self.server_close()

    def handle_error(self, *_: Any) -> None:
        """Connections that a killed server leaves behind."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else a body waits until the client acknowledges the head
    server: FarServer

    def setup(self) -> None:
        super().setup()
        with self.server.lock:
            self.server.connections += 1

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        server = self.server
        with server.lock:
            server.requests.append(self.path)
            number = len(server.requests)
        if server.stall.is_set():
            server.released.wait(60)
        if server.busy_every and number % server.busy_every == 0:
            return self.reply(503, b"")
        path, _, query = self.path.partition("?")
        if server.credentials and (why := self.unsigned(path, query)):
            with server.lock:
                server.refused.append(why)
            xml = f"<Error><Code>SignatureDoesNotMatch</Code><AWSAccessKeyId>{server.credentials.access_key}</AWSAccessKeyId></Error>"
            return self.reply(403, xml.encode())
        fields = dict(parse_qsl(query, keep_blank_values=True))
        if "list-type" in fields:
            return self.list(unquote(path).strip("/"), fields)
        file = server.folder / unquote(path).lstrip("/")
        if not file.is_file():
            return self.reply(404, b"<Error><Code>NoSuchKey</Code></Error>")
        self.file(file.read_bytes(), cut=bool(server.cut_every) and number % server.cut_every == 0)

    def file(self, data: bytes, *, cut: bool) -> None:
        tag = f'"{hashlib.md5(data, usedforsecurity=False).hexdigest()}"'
        if self.headers.get("If-Match", tag) != tag:
            return self.reply(412, b"")
        wanted = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if not wanted:
            return self.reply(200, data, {"ETag": tag}, cut=cut)
        first, last = int(wanted[1]), min(int(wanted[2]), len(data) - 1)
        if first > last:
            return self.reply(416, b"", {"Content-Range": f"bytes */{len(data)}"})
        place = {"ETag": tag, "Content-Range": f"bytes {first}-{last}/{len(data)}"}
        self.reply(206, data[first : last + 1], place, cut=cut)

    def reply(self, status: int, body: bytes, headers: dict[str, str] | None = None, *, cut: bool = False) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body[: len(body) // 2] if cut else body)
        self.close_connection = cut

    def list(self, bucket: str, fields: dict[str, str]) -> None:
        """ListObjectsV2, with a thousand keys per page."""
        folder = self.server.folder / bucket
        prefix, delimiter = fields["prefix"], fields.get("delimiter")
        files = {str(file.relative_to(folder)): file for file in folder.rglob("*") if file.is_file()}
        keys: set[str] = set()
        for key in files:
            if key.startswith(prefix):
                head, slash, _ = key[len(prefix) :].partition("/")
                keys.add(prefix + head + slash if delimiter and slash else key)
        ordered = sorted(keys, key=lambda key: key.encode())
        begin = int(fields.get("continuation-token", "0+/=").removesuffix("+/="))
        xml = ""
        for key in ordered[begin : begin + 1000]:
            if key in files:
                data = files[key].read_bytes()
                tag = hashlib.md5(data, usedforsecurity=False).hexdigest()
                xml += f"<Contents><Key>{escape(key)}</Key><Size>{len(data)}</Size><ETag>&quot;{tag}&quot;</ETag></Contents>"
            else:
                xml += f"<CommonPrefixes><Prefix>{escape(key)}</Prefix></CommonPrefixes>"
        if len(ordered) > begin + 1000:
            xml += f"<IsTruncated>true</IsTruncated><NextContinuationToken>{begin + 1000}+/=</NextContinuationToken>"
        name = 'xmlns="http://s3.amazonaws.com/doc/2006-03-01/"'
        self.reply(200, f'<?xml version="1.0" encoding="UTF-8"?><ListBucketResult {name}>{xml}</ListBucketResult>'.encode())

    def unsigned(self, path: str, query: str) -> str:
        """Why the signature is wrong, checked with botocore; empty if it is right."""
        server = self.server
        assert server.credentials
        if quote(unquote(path), safe="/" + PLAIN) != path:
            return f"path not encoded as S3 wants it: {path}"
        pairs = query.split("&") if query else []
        encoded = ["=".join(quote(unquote(part), safe=PLAIN) for part in pair.split("=", 1)) for pair in pairs]
        if sorted(encoded) != pairs:
            return f"query not encoded and sorted: {query}"
        given = re.fullmatch(
            r"AWS4-HMAC-SHA256 Credential=([^/]+)/(\d{8})/([^/]+)/s3/aws4_request, ?SignedHeaders=([^,]+), ?Signature=(\w+)",
            self.headers.get("Authorization", ""),
        )
        if not given:
            return "not signed"
        access_key, _, region, names, signature = given.groups()
        if (access_key, region) != (server.credentials.access_key, server.region):
            return f"signed by {access_key} for {region}"
        if self.headers.get("x-amz-security-token") != server.credentials.token:
            return "another session token"
        required = {"host", "x-amz-date", "x-amz-content-sha256"} | ({"x-amz-security-token"} if server.credentials.token else set())
        if not required <= set(names.split(";")):
            return f"signed headers: {names}"
        if self.headers["x-amz-content-sha256"] != hashlib.sha256(b"").hexdigest():
            return "hash of another body"
        auth = S3SigV4Auth(server.credentials, "s3", region)
        request = AWSRequest("GET", f"http://{self.headers['Host']}{path}?{query}", {n: self.headers[n] for n in names.split(";")})
        request.context["timestamp"] = self.headers["x-amz-date"]
        request.context["client_config"] = None
        canonical = auth.canonical_request(request)
        expected = auth.signature(auth.string_to_sign(request, canonical), request)
        return "" if signature == expected else f"signature of another request than\n{canonical}"
