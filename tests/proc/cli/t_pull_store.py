#!/usr/bin/env python3
"""t_pull_store.py - tests `muster pull` from object stores: a fake of S3, Cloud Storage and Azure's blobs that checks
signatures and tokens, cuts and hides; and moto, an emulator that we did not write.

The fake's check of Signature Version 4 is written from Amazon's document. Where botocore is installed its signer has to
agree with each signature that the fake has accepted. Parts with moto are skipped where that is missing.
"""
import base64
import datetime
import hmac
import importlib.util
import json
import os
import re
import subprocess
import tempfile
import unittest
import unittest.mock
import urllib.parse
import xml.sax.saxutils

import t_pull
from t_pull import Case, body_of, sha

KEY, SECRET = "AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
HAS_BOTOCORE = importlib.util.find_spec("botocore") is not None
SIZE = 300_000


def canonical(handler, signed):
    path, _, query = handler.path.partition("?")
    query = "&".join(sorted(p if "=" in p else p + "=" for p in query.split("&") if p))
    lines = [handler.command, path, query]
    lines += [f"{name}:{' '.join(handler.headers[name].split())}" for name in signed]
    return "\n".join([*lines, "", ";".join(signed), handler.headers["x-amz-content-sha256"]])


def signature(secret, date, region, text):
    key = ("AWS4" + secret).encode()
    for part in (date[:8], region, "s3", "aws4_request"):
        key = hmac.digest(key, part.encode(), "sha256")
    scope = f"{date[:8]}/{region}/s3/aws4_request"
    return hmac.new(key, f"AWS4-HMAC-SHA256\n{date}\n{scope}\n{sha(text.encode())}".encode(), "sha256").hexdigest()


def of_botocore(handler, key, region):
    """The signature that Amazon's own client computes for this request."""
    import botocore.auth
    import botocore.awsrequest
    import botocore.credentials
    headers = {n: handler.headers[n] for n in ("host", "x-amz-content-sha256")}
    request = botocore.awsrequest.AWSRequest("GET", f"http://{handler.headers['host']}{handler.path}", headers=headers)
    request.context["payload_signing_enabled"] = True
    signer = botocore.auth.S3SigV4Auth(botocore.credentials.Credentials(*key), "s3", region)
    date = datetime.datetime.strptime(handler.headers["x-amz-date"], "%Y%m%dT%H%M%SZ")
    request.context["timestamp"] = handler.headers["x-amz-date"]
    if key[2]:
        request.headers["x-amz-security-token"] = key[2]
    request.headers["x-amz-date"] = f"{date:%Y%m%dT%H%M%SZ}"
    text = signer.string_to_sign(request, signer.canonical_request(request))
    return signer.signature(text, request)


GCS_SCOPE = "https://www.googleapis.com/auth/devstorage.read_only"


class Store:
    """Buckets, who may read them, and the servers of tokens, all on one site."""

    def __init__(self, site, kind):
        self.site, self.kind = site, kind
        self.objects, self.public, self.faults = {}, False, []
        self.region, self.keys = "us-east-1", {KEY: (KEY, SECRET, "")}
        self.tokens, self.logins, self.identity = set(), [], {}
        self.page = 2
        site.routes = self
        site.server.RequestHandlerClass = Handler

    def get(self, path):  # of the site: what answers a path
        if path.startswith(("/latest/", "/computeMetadata/", "/token", "/tenant/", "/metadata/", "/v1/")):
            return self.login
        return self.answer

    # ---- logins

    def login(self, h):
        self.logins.append(h.path)
        token = f"token-{len(self.logins)}"
        if h.path == "/latest/api/token":
            return h.say(200, b"metadata-session")
        if h.path.startswith("/latest/"):
            name = h.path.rsplit("/", 1)[1]
            if h.headers.get("x-aws-ec2-metadata-token") != "metadata-session":
                return h.say(401)
            if not name:
                return h.say(200, b"a-role")
            key = ("ASIAROLE", "of/the+role", "session/token==")
            self.keys[key[0]] = key
            end = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(hours=1)
            return h.say(200, json.dumps({"AccessKeyId": key[0], "SecretAccessKey": key[1], "Token": key[2],
                                          "Expiration": f"{end:%Y-%m-%dT%H:%M:%SZ}"}).encode())
        if h.path.startswith("/metadata/"):  # of Azure's machines; its lives are texts
            asked = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(h.path).query))
            if h.headers.get("Metadata") != "true":
                return h.say(400, b'{"error":"invalid_request","error_description":"Required metadata header"}')
            if asked != {"api-version": "2018-02-01", "resource": "https://storage.azure.com/", **self.identity}:
                return h.say(400, b'{"error":"invalid_resource","error_description":"no"}')
            self.tokens.add(token)
            return h.say(200, json.dumps({"access_token": token, "expires_in": "86399", "resource": asked["resource"],
                                          "token_type": "Bearer"}).encode())
        if h.path.startswith("/computeMetadata/") and h.headers.get("Metadata-Flavor") != "Google":
            return h.say(403)
        if h.path.startswith("/v1/account:"):
            asked = json.loads(h.rfile.read(int(h.headers["Content-Length"])))
            if h.headers["Authorization"] != "Bearer federated" or asked != {"scope": [GCS_SCOPE], "lifetime": "3600s"}:
                return h.say(403, b'{"error":{"status":"PERMISSION_DENIED"}}')
            end = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(hours=1)
            self.tokens.add(token)
            return h.say(200, json.dumps({"accessToken": token, "expireTime": f"{end:%Y-%m-%dT%H:%M:%SZ}"}).encode())
        if h.command == "POST":
            form = dict(urllib.parse.parse_qsl(h.rfile.read(int(h.headers["Content-Length"])).decode()))
            if not self.knows(h.path, form):
                return h.say(400, b'{"error":"invalid_grant","error_description":"no"}')
            if form.get("scope") == "https://www.googleapis.com/auth/cloud-platform":
                token = "federated"  # it opens the account, not the store
                return h.say(200, json.dumps({"access_token": token, "expires_in": 3600, "token_type": "Bearer"}).encode())
        self.tokens.add(token)
        return h.say(200, json.dumps({"access_token": token, "expires_in": 3600, "token_type": "Bearer"}).encode())

    def knows(self, path, form):
        if path == "/tenant/oauth2/v2.0/token":
            return form == {"grant_type": "client_credentials", "client_id": "app", "client_secret": "app-secret",
                            "scope": "https://storage.azure.com/.default"}
        if path == "/v1/token":
            scopes = (GCS_SCOPE, "https://www.googleapis.com/auth/cloud-platform")
            return form["scope"] in scopes and form == {
                "scope": form["scope"], "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange", "audience": "//iam/pool/idp",
                "requested_token_type": "urn:ietf:params:oauth:token-type:access_token", "subject_token": "subject-of-the-idp",
                "subject_token_type": "urn:ietf:params:oauth:token-type:jwt"}
        claims = json.loads(base64.urlsafe_b64decode(form["assertion"].split(".")[1] + "=="))
        return claims["scope"] == GCS_SCOPE and self.signed(form["assertion"])

    def signed(self, assertion):
        text, _, sign = assertion.rpartition(".")
        with tempfile.NamedTemporaryFile() as f:
            f.write(base64.urlsafe_b64decode(sign + "=="))
            f.flush()
            return subprocess.run(["openssl", "dgst", "-sha256", "-verify", self.public_key, "-signature", f.name],
                                  input=text.encode(), capture_output=True).returncode == 0

    # ---- objects

    def may_read(self, h):
        given = h.headers.get("Authorization")
        if given is None:
            return self.public
        if self.kind != "s3":
            return given.removeprefix("Bearer ") in self.tokens
        parts = re.fullmatch(r"AWS4-HMAC-SHA256 Credential=([^/]+)/(\d{8})/([^/]+)/s3/aws4_request, "
                             r"SignedHeaders=([^,]+), Signature=([0-9a-f]{64})", given)
        key, date = self.keys.get(parts[1]), h.headers["x-amz-date"]
        signed = parts[4].split(";")
        if not key or date[:8] != parts[2] or parts[3] != self.region or "host" not in signed:
            return False
        if key[2] and h.headers.get("x-amz-security-token") != key[2]:
            return False
        good = signature(key[1], date, self.region, canonical(h, signed)) == parts[5]
        if good and HAS_BOTOCORE and of_botocore(h, key, self.region) != parts[5]:
            raise AssertionError("botocore signs it otherwise")
        return good

    def answer(self, h):
        path, _, query = h.path.partition("?")
        asked = dict(urllib.parse.parse_qsl(query, keep_blank_values=True))
        _, bucket, *key = urllib.parse.unquote(path).split("/")
        key = "/".join(key)
        region = re.search(r"/([^/]+)/s3/aws4", h.headers.get("Authorization", ""))
        if region and region[1] != self.region:
            return h.say(400, b"<Error><Code>AuthorizationHeaderMalformed</Code></Error>",
                         x_amz_bucket_region=self.region)
        if not self.may_read(h):
            return h.say(404 if self.kind == "az" else 403, b"<Error><Code>AccessDenied</Code></Error>")
        if self.kind == "az" and "x-ms-version" not in h.headers:
            return h.say(400)
        if "prefix" in asked:
            return h.say(200, self.listing(bucket, asked).encode())
        data = self.objects.get(f"{bucket}/{key}")
        if data is None:
            return h.say(404, b"<Error><Code>NoSuchKey</Code></Error>")
        cut = self.faults.pop(0) if self.faults else None
        return t_pull.served(data, cut=cut)(h)

    def listing(self, bucket, asked):
        esc = xml.sax.saxutils.escape
        names = sorted(k.partition("/")[2] for k in self.objects if k.startswith(f"{bucket}/{asked['prefix']}"))
        at = int(asked.get("continuation-token") or asked.get("marker") or 0)
        part, more = names[at:at + self.page], at + self.page < len(names)
        sizes = [len(self.objects[f"{bucket}/{n}"]) for n in part]
        if self.kind == "az":
            blobs = "".join(f"<Blob><Name>{esc(n)}</Name><Properties><Content-Length>{s}</Content-Length></Properties>"
                            "</Blob>" for n, s in zip(part, sizes))
            return (f'<?xml version="1.0"?><EnumerationResults ContainerName="c"><Blobs>{blobs}</Blobs>'
                    f"<NextMarker>{at + self.page if more else ''}</NextMarker></EnumerationResults>")
        rows = "".join(f"<Contents><Key>{esc(n)}</Key><Size>{s}</Size></Contents>" for n, s in zip(part, sizes))
        token = f"<NextContinuationToken>{at + self.page}</NextContinuationToken>" if more else ""
        return f'<?xml version="1.0"?><ListBucketResult xmlns="x">{rows}{token}</ListBucketResult>'


class Handler(t_pull.Handler):
    def do_POST(self):
        self.do_GET()

    do_PUT = do_POST


class Stores(Case):
    """Runs pulls without any credentials of the machine that tests run on."""

    def setUp(self):
        super().setUp()
        self.env = {"AWS_EC2_METADATA_DISABLED": "true", "HOME": self.folder}

    def store(self, kind):
        made = Store(self.site, kind)
        if kind == "s3":
            self.env |= {"AWS_ENDPOINT_URL_S3": self.site.url}
        if kind == "gs":
            self.env |= {"STORAGE_EMULATOR_HOST": self.site.url, "GCE_METADATA_HOST": f"127.0.0.1:{self.site.port}"}
        return made

    def start(self, *args, **more):
        gone = ("AWS_", "AZURE_", "GOOGLE_", "GCE_", "STORAGE_")
        with unittest.mock.patch.dict(os.environ):
            for name in [n for n in os.environ if n.startswith(gone)]:
                del os.environ[name]
            os.environ.update(self.env)
            return super().start(*args, **more)

    def end(self, process):
        status, out, err = super().end(process)
        for secret in (SECRET, "app-secret", "of/the+role", "session/token", "token-"):
            self.assertNotIn(secret, out + err)
        return status, out, err

    def with_key(self):
        self.env |= {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET}


class S3(Stores):
    def test_a_key_of_the_environment(self):
        s, data = self.store("s3"), body_of(SIZE)
        self.with_key()
        err = self.bad("s3://b-1/none.gguf")
        self.assertIn("no such file (404)", err)
        s.objects["b-1/dir/m+1_ä.gguf"] = data
        got = self.good("s3://b-1/dir/m+1_ä.gguf", "--sha256", sha(data))
        self.assertEqual((got["path"], got["bytes"]), ("models/m+1_ä.gguf", SIZE))
        self.assertEqual(self.site.requests[-1][0], "/b-1/dir/m%2B1_%C3%A4.gguf")

    def test_a_cut_goes_on_and_each_try_is_signed(self):
        s, data = self.store("s3"), body_of(SIZE)
        s.objects["b/m.gguf"], s.faults = data, [100_000, None]
        self.with_key()
        got = self.good("s3://b/m.gguf", "--sha256", sha(data))
        self.assertEqual(got["fetched_bytes"], SIZE)
        self.assertEqual(self.site.ranges("/b/m.gguf"), [None, "bytes=100000-"])

    def test_a_wrong_digest_is_found(self):
        self.store("s3").objects["b/m.gguf"] = body_of(SIZE)
        self.with_key()
        self.assertIn(sha(b""), self.bad("s3://b/m.gguf", "--sha256", sha(b"")))
        self.assertEqual(self.names("models"), [])

    def test_a_wrong_key_is_refused_once_more_and_then_for_good(self):
        self.store("s3").objects["b/m.gguf"] = body_of(SIZE)
        self.env |= {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": "another"}
        self.assertIn("may these credentials read it?", self.bad("s3://b/m.gguf"))
        self.assertEqual(len(self.site.requests), 2)

    def test_a_profile_of_the_usual_file(self):
        s, data = self.store("s3"), body_of(SIZE)
        s.objects["b/m.gguf"] = data
        self.write(".aws/credentials", f"[default]\naws_access_key_id = {KEY}\naws_secret_access_key = {SECRET}\n")
        os.chmod(self.path(".aws/credentials"), 0o600)
        self.good("s3://b/m.gguf", "--sha256", sha(data))
        os.chmod(self.path(".aws/credentials"), 0o644)
        os.unlink(self.path("models/m.gguf"))
        self.assertIn("credentials", self.bad("s3://b/m.gguf"))

    def test_a_public_bucket_is_asked_without_a_signature(self):
        s, data = self.store("s3"), body_of(SIZE)
        s.objects["b/m.gguf"], s.public = data, True
        self.good("s3://b/m.gguf", "--sha256", sha(data))
        self.assertNotIn("authorization", [n.lower() for n in self.site.requests[0][1]])

    def test_a_private_one_is_asked_again_as_the_machine(self):
        s, data = self.store("s3"), body_of(SIZE)
        s.objects["b/m.gguf"] = data
        self.assertIn("give the machine a role", self.bad("s3://b/m.gguf"))
        self.env |= {"AWS_EC2_METADATA_DISABLED": "false", "AWS_EC2_METADATA_SERVICE_ENDPOINT": self.site.url}
        self.good("s3://b/m.gguf", "--sha256", sha(data))
        self.assertIn("x-amz-security-token", self.site.requests[-1][1])

    def test_a_bucket_of_another_region(self):
        s, data = self.store("s3"), body_of(SIZE)
        s.objects["b/d/config.json"], s.objects["b/d/w.safetensors"], s.region = b"{}", data, "eu-central-1"
        self.with_key()
        self.good("s3://b/d/")
        s.objects["b/m.gguf"] = data
        self.good("s3://b/m.gguf", "--sha256", sha(data))
        regions = [re.search("/([^/]+)/s3/", h["authorization"])[1] for _, h in self.site.requests]
        self.assertEqual(regions, ["us-east-1"] + ["eu-central-1"] * 3 + ["us-east-1", "eu-central-1"])

    def test_a_folder_and_shards_by_name(self):
        s = self.store("s3")
        files = {"config.json": b"{}", "model.safetensors": body_of(SIZE), "tokenizer.json": b"[]", "README.md": b"no",
                 "1_Pooling/config.json": b"{ }"}
        for name, data in files.items():
            s.objects[f"b/models/emb/{name}"] = data
        s.objects["b/models/emb/"] = b""  # a mark that some tools leave
        s.objects["b/models/emb2/other.json"] = b""
        parts = {f"m-0000{i}-of-00002.gguf": body_of(1000 * i, i) for i in (1, 2)}
        s.objects |= {f"b/{n}": d for n, d in parts.items()}
        self.with_key()
        self.write("muster.yaml", f"""models:
  folder: here
  list:
    - {{name: emb, url: "s3://b/models/emb/", endpoint: "{self.site.url}/"}}
    - {{name: big, url: "s3://b/m-00001-of-00002.gguf", endpoint: "{self.site.url}"}}
    - {{name: plain, url: "http://h/m", endpoint: "{self.site.url}"}}
""")
        del self.env["AWS_ENDPOINT_URL_S3"]
        got = self.good("emb")
        self.assertEqual(got["path"], "here/emb")
        self.assertEqual(self.names("here", "emb"), sorted(n for n in files if n != "README.md"))
        self.assertEqual(self.good("big")["path"], "here/big/m-00001-of-00002.gguf")
        self.assertIn("endpoint is for URLs of object stores", self.bad("plain"))

    def test_listings_that_lie(self):
        s = self.store("s3")
        self.with_key()
        for name in ("../x.safetensors", "a/../../x.safetensors", "a\\b.safetensors"):
            s.objects = {f"b/d/{name}": b"x"}
            self.assertIn("outside the model's folder", self.bad("s3://b/d/"))
        s.listing = lambda bucket, asked: "<ListBucketResult><Contents><Key>e/x</Key><Size>1</Size></Contents></ListBucketResult>"
        self.assertIn("not asked for", self.bad("s3://b/d/"))
        s.listing = lambda bucket, asked: '<!DOCTYPE x [<!ENTITY a "b">]><ListBucketResult/>'
        self.bad("s3://b/d/")
        self.assertEqual(self.names("models"), [])

    def test_room_is_kept(self):
        s = self.store("s3")
        s.objects["b/m.gguf"] = body_of(2 << 20)
        self.with_key()
        self.write("muster.yaml", 'models:\n  folder: here\n  max: 1MiB\n  list:\n    - {name: m, url: "s3://b/m.gguf"}\n')
        self.assertIn("models.max", self.bad("m"))
        self.assertEqual([n for n in self.names("here") if n.endswith("gguf")], [])


class Google(Stores):
    def test_the_machines_token(self):
        s, data = self.store("gs"), body_of(SIZE)
        s.objects["b/d/m.gguf"], s.faults = data, [1000]
        self.good("gs://b/d/m.gguf", "--sha256", sha(data))
        self.assertEqual(len(s.logins), 1)

    def test_a_service_accounts_key(self):
        s, data = self.store("gs"), body_of(SIZE)
        s.objects["b/d/config.json"], s.objects["b/d/m.safetensors"], s.objects["b/d/vocab.txt"] = b"{}", data, b"x"
        key, s.public_key = self.path("key.pem"), self.path("pub.pem")
        subprocess.run(["openssl", "genpkey", "-algorithm", "RSA", "-out", key], check=True, capture_output=True)
        subprocess.run(["openssl", "pkey", "-in", key, "-pubout", "-out", s.public_key], check=True, capture_output=True)
        self.write("key.json", json.dumps({"type": "service_account", "client_email": "a@b", "private_key_id": "1",
                                           "private_key": self.read("key.pem").decode(),
                                           "token_uri": self.site.url + "/token"}))
        os.chmod(self.path("key.json"), 0o600)
        self.env |= {"GOOGLE_APPLICATION_CREDENTIALS": self.path("key.json")}
        self.good("gs://b/d/")
        self.assertEqual(self.read("models", "d", "m.safetensors"), data)
        self.assertEqual(s.logins, ["/token"])

    def test_an_identity_of_another_provider(self):
        """Workload identity federation: the pool's identity reads the store itself, or as a service account."""
        s, data = self.store("gs"), body_of(SIZE)
        s.objects["b/d/m.gguf"] = data
        self.write("subject", "subject-of-the-idp\n")
        os.chmod(self.path("subject"), 0o600)
        config = {"type": "external_account", "audience": "//iam/pool/idp", "token_url": self.site.url + "/v1/token",
                  "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
                  "credential_source": {"file": self.path("subject")}}
        self.env |= {"GOOGLE_APPLICATION_CREDENTIALS": self.path("key.json")}
        account = {"service_account_impersonation_url": self.site.url + "/v1/account:generateAccessToken"}
        for more, logins in (({}, ["/v1/token"]), (account, ["/v1/token", "/v1/account:generateAccessToken"])):
            s.logins.clear()
            self.write("key.json", json.dumps(config | more))
            os.chmod(self.path("key.json"), 0o600)
            self.good("gs://b/d/m.gguf", "--sha256", sha(data), "--to", self.path("to" + str(len(logins))))
            self.assertEqual(s.logins, logins)
        self.write("subject", "another")
        self.assertIn("invalid_grant", self.bad("gs://b/d/m.gguf", "--to", self.path("other")))

    def test_no_token_goes_over_a_plain_line(self):
        self.store("gs")
        self.write("key.json", "{}")
        self.env |= {"STORAGE_EMULATOR_HOST": "http://store.example", "GOOGLE_APPLICATION_CREDENTIALS": self.path("key.json")}
        self.assertIn("unprotected", self.bad("gs://b/m.gguf"))


class Azure(Stores):
    def test_an_applications_secret(self):
        s, data = self.store("az"), body_of(SIZE)
        s.objects["c/d/m.gguf"] = data
        self.env |= {"AZURE_CLIENT_ID": "app", "AZURE_CLIENT_SECRET": "app-secret", "AZURE_TENANT_ID": "tenant",
                     "AZURE_AUTHORITY_HOST": self.site.url}
        self.good("az://account/c/d/m.gguf", "--endpoint", self.site.url, "--sha256", sha(data))
        s.objects |= {"c/d/a.safetensors": data, "c/d/b.json": b"{}", "c/d/c.json": b"{}"}
        self.good("az://account/c/d/", "--endpoint", self.site.url)
        self.assertEqual(self.names("models", "d"), ["a.safetensors", "b.json", "c.json"])

    def test_the_machines_identity(self):
        """Of a machine with one identity, and of one that has several, where AZURE_CLIENT_ID says which."""
        s, data = self.store("az"), body_of(SIZE)
        s.objects["c/d/m.gguf"], s.faults = data, [1000]
        self.env |= {"AZURE_POD_IDENTITY_AUTHORITY_HOST": self.site.url}
        self.good("az://account/c/d/m.gguf", "--endpoint", self.site.url, "--sha256", sha(data))
        self.assertEqual(len(s.logins), 1)
        s.identity = {"client_id": "mine"}
        self.env |= {"AZURE_CLIENT_ID": "mine"}
        self.good("az://account/c/d/m.gguf", "--endpoint", self.site.url, "--at", self.path("other.gguf"))
        self.assertEqual(self.read("other.gguf"), data)
        s.identity = {"client_id": "another"}
        self.assertIn("the machine's identity", self.bad("az://account/c/d/m.gguf", "--endpoint", self.site.url, "--at",
                                                         self.path("none.gguf")))

    def test_a_public_container(self):
        s, data = self.store("az"), body_of(SIZE)
        s.objects["c/m.gguf"], s.public = data, True
        self.good("https://account.blob.core.windows.net/c/m.gguf", "--endpoint", self.site.url, "--sha256", sha(data))
        self.assertEqual(s.logins, [])


@unittest.skipUnless(importlib.util.find_spec("moto") and HAS_BOTOCORE, "moto is not installed")
class OfMoto(Stores):
    def test_objects_and_folders(self):
        import botocore.session
        from moto.server import ThreadedMotoServer
        server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        server.start()
        self.addCleanup(server.stop)
        url = "http://127.0.0.1:%d" % server.get_host_and_port()[1]
        client = botocore.session.get_session().create_client("s3", "us-east-1", endpoint_url=url, aws_access_key_id=KEY,
                                                              aws_secret_access_key=SECRET)
        client.create_bucket(Bucket="bucket")
        data = body_of(SIZE)
        for i in range(11):
            client.put_object(Bucket="bucket", Key=f"d/{i:04}.txt", Body=b"x")
        client.put_object(Bucket="bucket", Key="d/m.safetensors", Body=data)
        self.with_key()
        got = self.good("s3://bucket/d/", "--endpoint", url)
        self.assertEqual(got["bytes"], SIZE + 11)
        self.good("s3://bucket/d/m.safetensors", "--endpoint", url, "--sha256", sha(data))


if __name__ == "__main__":
    unittest.main()
