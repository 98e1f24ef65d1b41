"""t_ec2.py - tests the EC2 driver by what Amazon itself publishes: each request that t_web_ec2 makes, and each that a
controller sends, is checked against botocore's model of the API (names, types, what is required) and against botocore's
signer; botocore's client and the AWS command line see and end what the driver made; and the driver buys from moto, an
emulator that we did not write.

Skipped where botocore is not installed, and the parts with `aws` and moto where those are missing.
MUSTER_EC2_PYTHON names a Python that has them.
"""

import base64
import datetime
import functools
import http.client
import http.server
import importlib.util
import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.request
from unittest import mock
from urllib.parse import parse_qsl, urlsplit

SKIPPED = 77
KEY_ID = "AKIAFAKEFAKEFAKEFAKE"
SECRET = "secret-of-the-fake/with+signs=="
REGION = "eu-central-1"
HOSTS = {"ec2": f"ec2.{REGION}.amazonaws.com", "pricing": "api.pricing.us-east-1.amazonaws.com"}
LIMIT_S = 120  # ends what hangs


def other_python_or_skip():
    if importlib.util.find_spec("botocore"):
        return
    other = os.environ.get("MUSTER_EC2_PYTHON")
    if other and os.path.abspath(other) != os.path.abspath(sys.executable):
        os.execv(other, [other, *sys.argv])
    print("skipped: the Python library botocore is not installed")
    sys.exit(SKIPPED)


other_python_or_skip()
import botocore.auth  # noqa: E402
import botocore.session  # noqa: E402
from botocore.awsrequest import AWSRequest  # noqa: E402
from botocore.config import Config  # noqa: E402
from botocore.credentials import Credentials  # noqa: E402
from botocore.exceptions import ClientError  # noqa: E402
from botocore.validate import ParamValidator  # noqa: E402


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


# ---- requests against the model ----


SESSION = botocore.session.get_session()  # keeps the models that it has read


@functools.lru_cache
def model_of(service):
    return SESSION.get_service_model(service)


def wire_name(name, shape):
    """A member's name in a form of the ec2 protocol."""
    query = shape.serialization.get("queryName")
    if query:
        return query
    location = shape.serialization.get("name", name)
    return location[0].upper() + location[1:]


def to_python(shape, parts, value, tree):
    """Puts a parameter of a form into the structure that its dotted name stands for; returns the tree."""
    if shape.type_name == "structure":
        for name, member in shape.members.items():
            if wire_name(name, member) == parts[0]:
                tree = tree or {}
                tree[name] = to_python(member, parts[1:], value, tree.get(name))
                return tree
        raise AssertionError(f"{shape.name} has no member {parts[0]}")
    if shape.type_name == "list":
        tree = tree or {}
        index = int(parts[0])
        assert index >= 1, "lists begin at 1"
        tree[index] = to_python(shape.member, parts[1:], value, tree.get(index))
        return tree
    assert not parts, f"{shape.name} has no parts {parts}"
    if shape.type_name in ("integer", "long"):
        return int(value)
    if shape.type_name in ("float", "double"):
        return float(value)
    if shape.type_name == "boolean":
        assert value in ("true", "false"), value
        return value == "true"
    if shape.type_name == "timestamp":
        return datetime.datetime.fromisoformat(value.replace("Z", "+00:00"))
    if shape.type_name == "blob":
        base64.b64decode(value, validate=True)
    if getattr(shape, "enum", None):
        assert value in shape.enum, f"{value} is not one of {shape.enum}"
    return value


def with_lists(shape, tree):
    """Turns numbered members into lists, which must have no gap."""
    if shape.type_name == "structure":
        return {name: with_lists(shape.members[name], value) for name, value in tree.items()}
    if shape.type_name == "list":
        assert sorted(tree) == list(range(1, len(tree) + 1)), f"{shape.name}: {sorted(tree)}"
        return [with_lists(shape.member, tree[i]) for i in sorted(tree)]
    return tree


def check_shape(headers, body):
    """Checks a request against botocore's model; returns the service and the operation."""
    target = headers.get("x-amz-target")
    if target:
        service, operation, tree = "pricing", target.split(".")[1], json.loads(body)
        shape = model_of(service).operation_model(operation).input_shape
    else:
        pairs = parse_qsl(body.decode(), keep_blank_values=True, strict_parsing=True)
        names = [name for name, _ in pairs]
        assert len(names) == len(set(names)), "a parameter is there twice"
        form = dict(pairs)
        service, operation = "ec2", form.pop("Action")
        assert form.pop("Version") == model_of(service).api_version
        shape = model_of(service).operation_model(operation).input_shape
        numbered = {}
        for name, value in form.items():
            numbered = to_python(shape, name.split("."), value, numbered)
        tree = with_lists(shape, numbered)
    report = ParamValidator().validate(tree, shape)
    assert not report.has_errors(), report.generate_report()
    return service, operation


def check_signature(method, path, headers, body, service, region, key=(KEY_ID, SECRET)):
    """Signs the request once more by botocore, at the request's own date."""
    when = datetime.datetime.strptime(headers["x-amz-date"], "%Y%m%dT%H%M%SZ")
    signed = headers["authorization"].split("SignedHeaders=")[1].split(",")[0].split(";")
    keep = {n: headers[n] for n in signed if n not in ("host", "x-amz-date", "x-amz-security-token")}
    token = headers.get("x-amz-security-token")
    request = AWSRequest(method, f"https://{headers['host']}{path}", headers=keep, data=body)
    with mock.patch("botocore.auth.get_current_datetime", create=True, return_value=when), \
            mock.patch("botocore.auth.datetime") as clock:
        clock.datetime.utcnow.return_value = when
        clock.datetime.now.return_value = when
        botocore.auth.SigV4Auth(Credentials(*key, token), service, region).add_auth(request)
    assert request.headers["Authorization"] == headers["authorization"], "botocore signs it otherwise"


class Recorder(http.server.BaseHTTPRequestHandler):
    """Hands requests on to the fake, and keeps them."""

    protocol_version = "HTTP/1.1"
    requests, to_port = [], 0

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        headers = {k.lower(): v for k, v in self.headers.items()}
        self.requests.append((self.command, self.path, headers, body))
        link = http.client.HTTPConnection("127.0.0.1", self.to_port, timeout=30)
        link.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
        for name, value in headers.items():
            link.putheader(name, value)
        link.endheaders(body)
        reply = link.getresponse()
        text = reply.read()
        self.send_response_only(reply.status)
        for name, value in reply.getheaders():
            if name.lower() not in ("content-length", "connection", "transfer-encoding"):
                self.send_header(name, value)
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)
        link.close()

    def log_message(self, *args):
        pass


# ---- the tests ----


TESTS_KEY = ("AKIDEXAMPLEOFTESTS00", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY")  # of t_web_ec2.c
KNOWS_USER_DATA = "LaunchTemplateSpecificationUserData" in model_of("ec2").shape_for(
    "FleetLaunchTemplateSpecificationRequest").members


class Model(unittest.TestCase):
    """What the driver asks for in t_web_ec2, over all faults of the fake: stops, starts, templates, fleets and the rest."""

    def record(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "requests"
            environment = dict(os.environ, MUSTER_EC2_RECORD=str(path), MUSTER_CRASH_TIMES="1")  # those are not recorded
            subprocess.run([os.environ["T_WEB_EC2_BIN"]], env=environment, check=True, capture_output=True,
                           timeout=5 * LIMIT_S)
            return [json.loads(line) for line in path.read_text().splitlines()]

    def check(self, request):
        url = urlsplit(request["url"])
        headers = {"host": url.netloc, "content-type": request["type"], **request["headers"]}
        body = request["body"].encode()
        service, operation = check_shape(headers, body)
        region = "us-east-1" if service == "pricing" else REGION
        self.assertEqual((request["method"], url.netloc), ("POST", HOSTS[service]))
        check_signature("POST", url.path, headers, body, service, region, TESTS_KEY)
        return operation

    def test_requests_are_as_the_model_says(self):
        requests, operations, passed_over = self.record(), {}, 0
        for request in requests:
            if "Action=CreateFleet&" in request["body"] and not KNOWS_USER_DATA:
                passed_over += 1  # 1.44.8 knows user data of instant fleets
                continue
            with self.subTest(body=request["body"][:300]):
                operation = self.check(request)
                operations[operation] = operations.get(operation, 0) + 1
        if passed_over:
            print(f"this botocore does not know user data of fleets: {passed_over} requests were passed over")
            operations["CreateFleet"] = passed_over
        self.assertEqual(set(operations), {
            "RunInstances", "DescribeInstances", "TerminateInstances", "StopInstances", "StartInstances", "CreateFleet",
            "CreateLaunchTemplate", "DescribeLaunchTemplates", "DeleteLaunchTemplate", "DescribeImages",
            "DescribeSpotPriceHistory", "DescribeCapacityReservations", "GetProducts"})
        self.assertGreater(len(requests), 500)

    def test_the_judge_sees_what_is_wrong(self):
        head = f"Version={model_of('ec2').api_version}&Action="
        for body in (
            "StopInstances",  # without an id
            "StopInstances&InstanceId=i-1",  # a list has numbers
            "StopInstances&InstanceId.2=i-1",
            "StopInstances&InstanceIds.1=i-1",  # the name in Python, not on the wire
            "StopInstances&InstanceId.1=i-1&Force=yes",
            "StartInstances&InstanceId.1=i-1&Hibernate=true",
            "CreateLaunchTemplate&LaunchTemplateName=a",
            "CreateLaunchTemplate&LaunchTemplateName=a&LaunchTemplateData.InstanceInitiatedShutdownBehavior=end",
            "CreateLaunchTemplate&LaunchTemplateName=a&LaunchTemplateData.MinCount=1",
            "RunInstances&MinCount=1&MaxCount=1&LaunchTemplate.Id=lt-1",
        ):
            with self.assertRaises(Exception, msg=body):
                check_shape({}, (head + body).encode())


class Processes(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def start(self, argv, **more):
        with open(self.folder / "log", "ab") as log:
            process = subprocess.Popen(argv, stdout=log, stderr=log, **more)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def start_fake(self):
        self.port = free_port()
        self.start([os.environ["FAKE_CLOUD_BIN"], "--plays", "ec2", "--port", str(self.port), "--token", SECRET])
        wait(lambda: self.get("/fake/state") is not None, "the fake answers")

    def get(self, path):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=10) as reply:
                return json.load(reply)
        except OSError:
            return None

    def client(self, port, service="ec2"):
        return SESSION.create_client(
            service, region_name=REGION, endpoint_url=f"http://127.0.0.1:{port}", aws_access_key_id=KEY_ID,
            aws_secret_access_key=SECRET, config=Config(retries={"max_attempts": 0}))

    def start_controller(self, port, count, image="ami-0123456789abcdef0", more="", offer=""):
        config = self.folder / "muster.yaml"
        config.write_text(f"""
controller: {{ state: {self.folder}/state, tick: 100ms }}
clouds:
  - name: aws
    kind: ec2
    region: {REGION}
    endpoint: http://127.0.0.1:{port}
    image: {image}
    poll: 300ms
    calls_per_s: 50
{more}
    offers: [ {{ name: small, type: t3.large{offer} }} ]
services:
  - name: org/chat model
    model: /nowhere.gguf
    scale: static
    count: {count}
    pools: [ {{ name: only, provider: aws, offers: [small], min: {count}, max: {count} }} ]
""")
        environment = {k: v for k, v in os.environ.items() if not k.startswith("AWS_")}
        environment.update(AWS_ACCESS_KEY_ID=KEY_ID, AWS_SECRET_ACCESS_KEY=SECRET,
                           AWS_ENDPOINT_URL_PRICING=f"http://127.0.0.1:{port}")
        return self.start([os.environ["MUSTER_BIN"], "controller", "--config", str(config), "--listen",
                           f"127.0.0.1:{free_port()}"], env=environment)

    def ours(self, client):
        pages = client.get_paginator("describe_instances").paginate(
            Filters=[{"Name": "tag:muster-fleet", "Values": ["muster"]},
                     {"Name": "instance-state-name", "Values": ["pending", "running"]}])
        return [i for page in pages for r in page["Reservations"] for i in r["Instances"]]

    def log_text(self):
        return (self.folder / "log").read_text(errors="replace")


class Recorded(Processes):
    """What a controller sends, checked by botocore."""

    def record(self, more, offer, wanted):
        self.start_fake()
        Recorder.requests, Recorder.to_port = [], self.port
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Recorder)
        server.handle_error = lambda *args: None  # the controller is killed at the end
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        process = self.start_controller(server.server_port, 2, more=more, offer=offer)
        client = self.client(self.port)
        wait(lambda: len(self.ours(client)) == 2, "two instances of ours")
        gone = self.ours(client)[0]["InstanceId"]
        client.terminate_instances(InstanceIds=[gone])
        wait(lambda: len(self.ours(client)) == 2, "the lost one is replaced")
        named = lambda name: any(f"Action={name}&".encode() in body or headers.get("x-amz-target", "").endswith(f".{name}")
                                 for _, _, headers, body in list(Recorder.requests))
        wait(lambda: all(map(named, wanted)), f"all of {wanted} were asked for")
        process.kill()
        process.wait()
        return list(Recorder.requests)

    def check(self, more, offer, wanted):
        operations = set()
        for method, path, headers, body in self.record(more, offer, wanted):
            with self.subTest(body=body[:200]):
                service, operation = check_shape(headers, body)
                region = "us-east-1" if service == "pricing" else REGION
                check_signature(method, path, headers, body, service, region)
                operations.add(operation)
        self.assertLessEqual(wanted, operations)
        state = self.get("/fake/state")
        self.assertEqual((state["refused_form"], state["last_refused"]), (0, ""))
        self.assertNotIn(SECRET, self.log_text())

    def test_plain(self):
        self.check("", "", {"RunInstances", "DescribeInstances", "GetProducts"})

    def test_all_settings(self):
        more = """
    account: arn:aws:iam::123456789012:instance-profile/machine
    networks: [eu-central-1a=subnet-eu-central-1a, eu-central-1b=subnet-eu-central-1b]
    firewalls: [sg-1, sg-2]
    ssh_keys: [me]
    disk: 100GiB
    public_address: false
"""
        offer = ", zones: [eu-central-1a, eu-central-1b], spot: true, spot_price_max: 0.5"
        self.check(more, offer, {"RunInstances", "DescribeInstances", "DescribeImages", "DescribeSpotPriceHistory"})

    def test_reservation(self):
        self.check("", ", zones: [eu-central-1b], capacity_reservation: cr-0123456789abcdef0",
                   {"RunInstances", "DescribeCapacityReservations"})

    def test_fleet(self):
        if not KNOWS_USER_DATA:
            self.skipTest("this botocore does not know user data of instant fleets; 1.44.8 does")
        more = """
    account: machine
    networks: [eu-central-1a=subnet-eu-central-1a, eu-central-1b=subnet-eu-central-1b]
    firewalls: [sg-1, sg-2]
    ssh_keys: [me]
    disk: 100GiB
"""
        offer = ", types: [g6.xlarge], zones: [eu-central-1a, eu-central-1b], spot: true, spot_price_max: 0.5"
        self.check(more, offer, {"CreateFleet", "CreateLaunchTemplate", "DescribeLaunchTemplates"})


class Beside(Processes):
    """Amazon's own clients on our fake."""

    def test_each_sees_the_other(self):
        self.start_fake()
        client = self.client(self.port)
        theirs = client.run_instances(ImageId="ami-1", InstanceType="t3.large", MinCount=1, MaxCount=1)
        self.start_controller(self.port, 2)
        wait(lambda: len(self.ours(client)) == 2, "two instances of ours")
        first = self.ours(client)[0]
        tags = {t["Key"]: t["Value"] for t in first["Tags"]}
        self.assertEqual(first["InstanceType"], "t3.large")
        self.assertEqual(tags["muster-service"], "org/chat model")
        self.assertEqual(tags["muster-offer"], "small")
        self.assertEqual(tags["Name"], tags["muster-intent"])
        client.terminate_instances(InstanceIds=[first["InstanceId"]])
        wait(lambda: len(self.ours(client)) == 2, "the lost one is replaced")
        other = client.describe_instances(InstanceIds=[theirs["Instances"][0]["InstanceId"]])
        self.assertEqual(other["Reservations"][0]["Instances"][0]["State"]["Name"] in ("pending", "running"), True)

    def test_tokens(self):
        self.start_fake()
        client = self.client(self.port)
        ask = dict(ImageId="ami-1", InstanceType="t3.large", MinCount=1, MaxCount=1, ClientToken="twice")
        ids = {client.run_instances(**ask)["Instances"][0]["InstanceId"] for _ in range(3)}
        self.assertEqual(len(ids), 1)
        with self.assertRaises(ClientError) as refused:
            client.run_instances(**dict(ask, ImageId="ami-2"))
        self.assertEqual(refused.exception.response["Error"]["Code"], "IdempotentParameterMismatch")
        elsewhere = client.run_instances(**ask, Placement={"AvailabilityZone": "eu-central-1c"})
        self.assertNotIn(elsewhere["Instances"][0]["InstanceId"], ids)

    def test_stops(self):
        """Amazon's client stops and starts what the fake has."""
        self.start_fake()
        client = self.client(self.port)
        one = client.run_instances(ImageId="ami-1", InstanceType="t3.large", MinCount=1, MaxCount=1)
        ids = [one["Instances"][0]["InstanceId"]]
        change = client.stop_instances(InstanceIds=ids)["StoppingInstances"][0]
        self.assertEqual(change["CurrentState"]["Name"], "stopping")
        with self.assertRaises(ClientError) as refused:
            client.start_instances(InstanceIds=ids)
        self.assertEqual(refused.exception.response["Error"]["Code"], "IncorrectInstanceState")
        seen = client.describe_instances(InstanceIds=ids)["Reservations"][0]["Instances"][0]
        self.assertEqual(seen["State"]["Name"], "stopping")

    def test_fleet(self):
        """Amazon's client reads what the fake says of a fleet."""
        self.start_fake()
        client = self.client(self.port)
        config = {"LaunchTemplateSpecification": {"LaunchTemplateName": "mine", "Version": "1"},
                  "Overrides": [{"InstanceType": "g6.xlarge"}, {"InstanceType": "t3.large"}]}
        ask = dict(Type="instant", ClientToken="twice", LaunchTemplateConfigs=[config],
                   TargetCapacitySpecification={"TotalTargetCapacity": 1, "DefaultTargetCapacityType": "on-demand"})
        with self.assertRaises(ClientError) as refused:
            client.create_fleet(**ask)
        self.assertEqual(refused.exception.response["Error"]["Code"], "InvalidLaunchTemplateName.NotFoundException")
        client.create_launch_template(LaunchTemplateName="mine", LaunchTemplateData={"ImageId": "ami-1"})
        self.assertEqual([t["LaunchTemplateName"] for t in client.describe_launch_templates()["LaunchTemplates"]],
                         ["mine"])
        made = [client.create_fleet(**ask)["Instances"][0] for _ in range(2)]
        self.assertEqual(made[0]["InstanceIds"], made[1]["InstanceIds"])
        self.assertEqual(made[0]["InstanceType"], "t3.large")
        (found,) = client.describe_instances(InstanceIds=made[0]["InstanceIds"])["Reservations"]
        self.assertEqual(found["Instances"][0]["InstanceType"], "t3.large")

    def test_refusals(self):
        self.start_fake()
        with self.assertRaises(ClientError) as refused:
            self.client(self.port).terminate_instances(InstanceIds=["i-0aaaaaaaaaaaaaaaa"])
        self.assertEqual(refused.exception.response["Error"]["Code"], "InvalidInstanceID.NotFound")
        wrong = SESSION.create_client(
            "ec2", region_name=REGION, endpoint_url=f"http://127.0.0.1:{self.port}", aws_access_key_id=KEY_ID,
            aws_secret_access_key="another")
        with self.assertRaises(ClientError) as refused:
            wrong.describe_instances()
        self.assertEqual(refused.exception.response["Error"]["Code"], "SignatureDoesNotMatch")

    def test_command_line(self):
        beside = pathlib.Path(sys.executable).parent / "aws"
        aws = str(beside) if beside.exists() else shutil.which("aws")
        if not aws:
            self.skipTest("aws is not installed")
        self.start_fake()
        self.start_controller(self.port, 1)
        client = self.client(self.port)
        wait(lambda: len(self.ours(client)) == 1, "an instance of ours")
        environment = dict(os.environ, AWS_ACCESS_KEY_ID=KEY_ID, AWS_SECRET_ACCESS_KEY=SECRET, AWS_PAGER="",
                           AWS_EC2_METADATA_DISABLED="true", HOME=str(self.folder))
        run = lambda *argv: json.loads(subprocess.run(
            [aws, "--region", REGION, "--endpoint-url", f"http://127.0.0.1:{self.port}", "--output", "json", "ec2",
             *argv], env=environment, check=True, capture_output=True, timeout=LIMIT_S).stdout)
        seen = run("describe-instances", "--filters", "Name=tag:muster-fleet,Values=muster")
        (one,) = [i for r in seen["Reservations"] for i in r["Instances"]]
        ended = run("terminate-instances", "--instance-ids", one["InstanceId"])
        self.assertEqual(ended["TerminatingInstances"][0]["CurrentState"]["Name"], "shutting-down")


@unittest.skipUnless(importlib.util.find_spec("moto"), "moto is not installed")
class OfMoto(Processes):
    """The driver on an emulator that we did not write. It keeps no tokens and has no faults: shapes alone."""

    def test_create_list_remove(self):
        self.buy(", zones: [eu-central-1b]", "eu-central-1b")

    def test_fleet(self):
        self.buy(", types: [m5.large], zones: [eu-central-1c]", None)

    def buy(self, offer, zone):
        port = free_port()
        code = f"from moto.server import main; main(['-H', '127.0.0.1', '-p', '{port}'])"
        self.start([sys.executable, "-c", code])
        client = self.client(port)

        def images():
            try:
                return client.describe_images()["Images"]
            except Exception:
                return None
        wait(images, "moto answers")
        image = next(i["ImageId"] for i in images() if i.get("RootDeviceName"))
        process = self.start_controller(port, 2, image=image, more="    disk: 30GiB\n",
                                        offer=offer)
        wait(lambda: len(self.ours(client)) == 2, "two instances of ours")
        time.sleep(3)  # further listings would show a third, or take the two for lost
        found = self.ours(client)
        self.assertEqual(len(found), 2)
        self.assertEqual({t["Key"] for i in found for t in i["Tags"]} >= {"muster-intent", "muster-fleet"}, True)
        if not zone:  # moto knows neither zones nor user data of fleets
            return
        self.assertEqual({i["Placement"]["AvailabilityZone"] for i in found}, {zone})
        data = client.describe_instance_attribute(InstanceId=found[0]["InstanceId"], Attribute="userData")
        self.assertTrue(base64.b64decode(data["UserData"]["Value"]).startswith(b"#!"))
        client.terminate_instances(InstanceIds=[found[0]["InstanceId"]])
        wait(lambda: len(self.ours(client)) == 2, "the lost one is replaced")
        self.assertIsNone(process.poll())


if __name__ == "__main__":
    unittest.main()
