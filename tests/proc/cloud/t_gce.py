"""t_gce.py - tests our driver of Google Compute Engine against material of Google's: each request that t_web_gce makes
against the API's discovery document, and the driver beside Google's client libraries on one fake: both make machines there,
and both log in by workload identity federation.

Skipped where the library is not installed (google-api-python-client, which has the document in it). MUSTER_GCE_PYTHON
names a Python that has it.
"""

import json
import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.parse
import urllib.request

SKIPPED = 77
TOKEN = "token-of-the-fake"
LIMIT_S = 120  # ends what hangs
SCOPE = "https://www.googleapis.com/auth/compute"
API = "https://compute.googleapis.com/"
# tests/fakes/cloud/fake_gce.h
ACCOUNT = "muster@p-1.iam.gserviceaccount.com"
AUDIENCE = "//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/fleet/providers/idp"
SUBJECT = "eyJhbGciOiJub25lIn0.eyJzdWIiOiJtdXN0ZXIifQ.of-the-idp"


def library_or_skip():
    try:
        import googleapiclient.discovery

        return googleapiclient
    except ImportError:
        other = os.environ.pop("MUSTER_GCE_PYTHON", None)  # tried once
        if other:
            os.execv(other, [other, *sys.argv])
        print("skipped: the Python library google-api-python-client is not installed")
        sys.exit(SKIPPED)


googleapiclient = library_or_skip()
import google.auth.exceptions  # noqa: E402
import google.auth.identity_pool  # noqa: E402
import google.auth.transport.requests  # noqa: E402
import google.oauth2.credentials  # noqa: E402
from googleapiclient.errors import HttpError  # noqa: E402

DOCUMENT = json.loads((pathlib.Path(googleapiclient.__file__).parent / "discovery_cache/documents/compute.v1.json")
                      .read_text())


# ---- requests against the document ----


def methods(resource=DOCUMENT):
    for method in resource.get("methods", {}).values():
        yield method
    for inner in resource.get("resources", {}).values():
        yield from methods(inner)


def check_text(value, schema, where):
    if "enum" in schema and value not in schema["enum"]:
        raise AssertionError(f"{where}: {value} is none of {schema['enum']}")
    if "pattern" in schema and not re.fullmatch(schema["pattern"], value):
        raise AssertionError(f"{where}: {value} is not like {schema['pattern']}")
    if schema.get("format") in ("int64", "uint64"):
        int(value)


def check_value(value, schema, where):
    """Raises where a value is not as its schema says: members that it does not name, too."""
    schema = DOCUMENT["schemas"][schema["$ref"]] if "$ref" in schema else schema
    kinds = {"string": str, "boolean": bool, "integer": int, "number": (int, float), "array": list, "object": dict}
    if not isinstance(value, kinds[schema["type"]]) or (schema["type"] == "integer" and isinstance(value, bool)):
        raise AssertionError(f"{where}: {value!r} is no {schema['type']}")
    if schema.get("readOnly") and not schema.get("annotations"):
        raise AssertionError(f"{where}: it is the provider's to say")
    if schema["type"] == "array":
        for i, item in enumerate(value):
            check_value(item, schema["items"], f"{where}[{i}]")
    elif schema["type"] == "object":
        for name, member in value.items():
            inner = schema.get("properties", {}).get(name, schema.get("additionalProperties"))
            if inner is None:
                raise AssertionError(f"{where}: there is no member {name}")
            check_value(member, inner, f"{where}.{name}")
    elif schema["type"] == "string":
        check_text(value, schema, where)


def split_mask(mask):
    """Splits a,b(c,d) at the commas of its first level."""
    parts, depth, part = [], 0, ""
    for c in mask + ",":
        depth += (c == "(") - (c == ")")
        if c == "," and depth == 0:
            parts.append(part)
            part = ""
        else:
            part += c
    return parts


def check_mask(mask, schema, where):
    """Raises where a mask of members names one that the reply does not have."""
    for part in split_mask(mask):
        at, inner = schema, part
        while inner:
            while "$ref" in at or at.get("type") == "array":
                at = DOCUMENT["schemas"][at["$ref"]] if "$ref" in at else at["items"]
            name, sign, inner = re.fullmatch(r"([^/(]+)([/(]?)(.*)", inner).groups()
            at = at["additionalProperties"] if name == "*" else at.get("properties", {}).get(name)
            if at is None:
                raise AssertionError(f"{where}: a reply has no {name}")
            if sign == "(":
                while "$ref" in at or at.get("type") == "array":
                    at = DOCUMENT["schemas"][at["$ref"]] if "$ref" in at else at["items"]
                check_mask(inner[:-1], at, where)
                break


ROWS = [(m, re.findall(r"\{\+?(\w+)\}", m["path"]), re.compile(re.sub(r"\{\+?\w+\}", "([^/]+)", m["path"])))
        for m in methods()]


def find_method(verb, path):
    for method, names, pattern in ROWS:
        found = pattern.fullmatch(path) if method["httpMethod"] == verb else None
        if found:
            return method, dict(zip(names, map(urllib.parse.unquote, found.groups())))
    raise AssertionError(f"there is no {verb} {path}")


def check_request(request):
    """Returns the name of the method that a request calls."""
    url = urllib.parse.urlsplit(request["url"])
    base = "/" + DOCUMENT["servicePath"]
    if not url.path.startswith(base):
        raise AssertionError(f"{url.path} is not below {base}")
    method, values = find_method(request["method"], url.path[len(base):])
    values.update(urllib.parse.parse_qsl(url.query, keep_blank_values=True))
    known = {**DOCUMENT["parameters"], **method["parameters"]}
    for name, value in values.items():
        if name not in known:
            raise AssertionError(f"{method['id']}: there is no parameter {name}")
        check_text(value, known[name], f"{method['id']}: {name}")
    for name, parameter in method["parameters"].items():
        if parameter.get("required") and name not in values:
            raise AssertionError(f"{method['id']}: {name} is missing")
    if ("request" in method) != bool(request["body"]):
        raise AssertionError(f"{method['id']}: a body is missing, or one too many")
    if request["body"]:
        check_value(json.loads(request["body"]), method["request"], method["id"])
    if "fields" in values:
        check_mask(values["fields"], method["response"], method["id"])
    return method["id"]


class Document(unittest.TestCase):
    def test_requests_are_as_the_document_says(self):
        with tempfile.TemporaryDirectory() as folder:
            record = pathlib.Path(folder) / "requests"
            subprocess.run([os.environ["T_WEB_GCE_BIN"]], env=dict(os.environ, MUSTER_GCE_RECORD=str(record)),
                           check=True, capture_output=True, timeout=LIMIT_S)
            requests = [json.loads(line) for line in record.read_text().splitlines()]
        called = {check_request(r) for r in requests if r["url"].startswith(API)}
        self.assertEqual(called, {"compute.instances.insert", "compute.instances.get", "compute.instances.delete",
                                  "compute.instances.aggregatedList", "compute.zoneOperations.get",
                                  "compute.reservations.get", "compute.regionInstances.bulkInsert",
                                  "compute.regionOperations.get", "compute.instances.stop",
                                  "compute.instances.start"})
        self.assertGreater(len(requests), 500)

    def test_the_judge_sees_what_is_wrong(self):
        insert = API + "compute/v1/projects/p-1/zones/us-a/instances"
        listing = API + "compute/v1/projects/p-1/aggregated/instances?fields="
        for method, url, body in (
            ("POST", insert, '{"name": "i-1", "colour": "red"}'),
            ("POST", insert, '{"name": "I-1"}'),
            ("POST", insert, '{"disks": {"boot": true}}'),
            ("POST", insert, '{"scheduling": {"provisioningModel": "CHEAP"}}'),
            ("POST", insert, '{"disks": [{"initializeParams": {"diskSizeGb": 10}}]}'),
            ("POST", insert, '{"status": "RUNNING"}'),
            ("POST", insert, ""),
            ("POST", insert + "/i-1/start?discardLocalSsd=true", ""),
            ("POST", insert + "/i-1/start", "{}"),
            ("POST", insert + "?requestid=1", '{"name": "i-1"}'),
            ("PUT", insert, '{"name": "i-1"}'),
            ("GET", listing + "items/*/instances(name,colour)", ""),
        ):
            with self.assertRaises(AssertionError, msg=body):
                check_request({"method": method, "url": url, "body": body})


# ---- beside the library ----


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def wait(is_so, what):
    end = time.monotonic() + LIMIT_S
    while not is_so():
        if time.monotonic() > end:
            raise AssertionError(f"never: {what}")
        time.sleep(0.05)


class Beside(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.port = free_port()
        self.start([os.environ["FAKE_CLOUD_BIN"], "--plays", "gce", "--port", str(self.port), "--token", TOKEN])
        wait(lambda: self.get("/fake/state") is not None, "the fake answers")
        document = dict(DOCUMENT, rootUrl=f"http://127.0.0.1:{self.port}/")
        self.client = googleapiclient.discovery.build_from_document(
            document, credentials=google.oauth2.credentials.Credentials(TOKEN))
        self.addCleanup(self.client.close)

    def start(self, argv, **more):
        with open(pathlib.Path(self.folder.name) / "log", "ab") as log:
            process = subprocess.Popen(argv, stdout=log, stderr=log, **more)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def get(self, path):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=10) as reply:
                return json.load(reply)
        except OSError:
            return None

    def instances(self, fleet):
        """Lists as the library does: scope by scope."""
        request = self.client.instances().aggregatedList(project="p-1", filter=f'labels.muster-fleet = "{fleet}"')
        found = []
        while request:
            reply = request.execute()
            for scope in reply["items"].values():
                found += scope.get("instances", [])
            request = self.client.instances().aggregatedList_next(request, reply)
        return found

    def start_controller(self, count, **variables):
        folder = pathlib.Path(self.folder.name)
        config = folder / "muster.yaml"
        config.write_text(f"""
controller: {{ state: {folder}/state, tick: 100ms }}
clouds:
  - name: g
    kind: gce
    endpoint: http://127.0.0.1:{self.port}/compute/v1
    project: p-1
    image: projects/debian-cloud/global/images/family/debian-12
    poll: 300ms
    calls_per_s: 50
    offers: [ {{ name: small, type: e2-standard-4, zones: [europe-west4-a, europe-west4-b] }} ]
services:
  - name: org/chat
    model: /nowhere.gguf
    scale: static
    count: {count}
    pools: [ {{ name: only, provider: g, offers: [small], min: {count}, max: {count} }} ]
""")
        environment = dict(os.environ, GCE_METADATA_HOST=f"127.0.0.1:{self.port}")
        environment.pop("GOOGLE_APPLICATION_CREDENTIALS", None)
        environment.update(variables)
        return self.start([os.environ["MUSTER_BIN"], "controller", "--config", str(config), "--listen",
                           f"127.0.0.1:{free_port()}"], env=environment)

    def done(self, operation, zone):
        get = self.client.zoneOperations().get(project="p-1", zone=zone, operation=operation["name"])
        wait(lambda: get.execute()["status"] == "DONE", "the operation is done")
        return get.execute()

    def test_each_sees_the_other(self):
        zone = "europe-west4-a"
        body = {"name": "not-of-the-fleet", "machineType": f"zones/{zone}/machineTypes/e2-standard-4",
                "labels": {"muster-fleet": "another"},
                "disks": [{"boot": True, "initializeParams":
                           {"sourceImage": "projects/debian-cloud/global/images/family/debian-12"}}],
                "networkInterfaces": [{"network": "global/networks/default"}]}
        request_id = "6ba7b810-9dad-11d1-80b4-00c04fd430c8"
        insert = self.client.instances().insert(project="p-1", zone=zone, body=body, requestId=request_id)
        first = self.done(insert.execute(), zone)
        self.assertNotIn("error", first)
        self.assertEqual(insert.execute()["name"], first["name"])  # the request id brings it back
        with self.assertRaises(HttpError) as refused:
            self.client.instances().insert(project="p-1", zone=zone, body=body).execute()
        self.assertEqual(refused.exception.error_details[0]["reason"], "alreadyExists")

        self.start_controller(2)
        wait(lambda: len(self.instances("muster")) == 2, "two VMs of ours")
        ours = self.instances("muster")[0]
        self.assertTrue(ours["machineType"].endswith("/zones/europe-west4-a/machineTypes/e2-standard-4"))
        self.assertEqual(ours["name"], ours["labels"]["muster-intent"])
        self.assertEqual(ours["labels"]["muster-service"], "org_2fchat")

        # What the library deletes, the controller misses and buys anew.
        gone = self.client.instances().delete(project="p-1", zone=zone, instance=ours["name"]).execute()
        self.done(gone, zone)
        wait(lambda: len(self.instances("muster")) == 2 and
             all(i["name"] != ours["name"] for i in self.instances("muster")), "the lost one is replaced")
        self.assertEqual(len(self.instances("another")), 1)
        state = self.get("/fake/state")
        self.assertEqual((state["refused_form"], state["last_refused"]), (0, ""))

    # ---- workload identity federation ----

    def federation(self, source):
        """The file that `gcloud iam workload-identity-pools create-cred-config` writes, with the fake's addresses."""
        here = f"http://127.0.0.1:{self.port}"
        path = pathlib.Path(self.folder.name) / "federation.json"
        path.write_text(json.dumps({
            "type": "external_account", "universe_domain": "googleapis.com", "audience": AUDIENCE,
            "subject_token_type": "urn:ietf:params:oauth:token-type:jwt", "token_url": f"{here}/v1/token",
            "service_account_impersonation_url": f"{here}/v1/projects/-/serviceAccounts/{ACCOUNT}:generateAccessToken",
            "credential_source": source}))
        path.chmod(0o600)
        return path

    def sources(self):
        token = pathlib.Path(self.folder.name) / "subject"
        token.write_text(SUBJECT)
        token.chmod(0o600)
        return {"file": str(token)}, {"url": f"http://127.0.0.1:{self.port}/identity/token", "headers": {"x-caller": "fleet"},
                                      "format": {"type": "json", "subject_token_field_name": "value"}}

    def test_both_log_in_by_federation(self):
        """Google's library gets a token of the fake with each source, by the very file that our controller then takes."""
        for source in self.sources():
            with self.subTest(source=list(source)[0]):
                path = self.federation(source)
                credentials = google.auth.identity_pool.Credentials.from_file(str(path), scopes=[SCOPE])
                credentials.refresh(google.auth.transport.requests.Request())
                self.assertTrue(credentials.token.startswith("ya29.c."))
                made = len(self.instances("muster"))
                process = self.start_controller(made + 1, GOOGLE_APPLICATION_CREDENTIALS=str(path),
                                                GCE_METADATA_HOST="127.0.0.1:1")  # nobody answers there
                wait(lambda: len(self.instances("muster")) == made + 1, "a VM of ours")
                process.kill()
                process.wait()
        text = (pathlib.Path(self.folder.name) / "log").read_text(errors="replace")
        self.assertNotIn(SUBJECT, text)
        state = self.get("/fake/state")
        self.assertEqual((state["refused_form"], state["last_refused"]), (0, ""))

    def test_the_fake_refuses_what_google_does(self):
        """A wrong subject token, as the library reads the refusal."""
        source, _ = self.sources()
        pathlib.Path(source["file"]).write_text("another")
        credentials = google.auth.identity_pool.Credentials.from_file(str(self.federation(source)), scopes=[SCOPE])
        with self.assertRaisesRegex(google.auth.exceptions.OAuthError, "invalid_grant"):
            credentials.refresh(google.auth.transport.requests.Request())


if __name__ == "__main__":
    unittest.main()
