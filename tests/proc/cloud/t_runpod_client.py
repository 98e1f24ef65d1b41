"""t_runpod_client.py - tests our RunPod driver beside the provider's own client of version 2 of its REST API, which is its MCP
server (npm: @runpod/mcp-server; its Python library speaks another API): each sees what the other made, it deletes what the
driver made, and what the driver sends is held against the schemas that it was generated with.

Skipped where it is not installed (`npm install -g @runpod/mcp-server`, Node.js 20). MUSTER_RUNPOD_MCP names its `runpod-mcp`.
"""

import importlib.util
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

from beside import LIMIT_S, SKIPPED, TOKEN, Beside, wait

GPU = "NVIDIA GeForce RTX 4090"
MCP = os.environ.get("MUSTER_RUNPOD_MCP") or shutil.which("runpod-mcp")
if not MCP or not shutil.which("node"):
    print("skipped: @runpod/mcp-server is not installed")
    sys.exit(SKIPPED)


class Refused(Exception):
    pass


class Client:
    """Speaks JSON-RPC with the server over its standard streams, a line each way."""

    def __init__(self, url, key):
        environment = dict(os.environ, RUNPOD_API_BASE_URL=url, RUNPOD_API_KEY=key)
        self.process = subprocess.Popen(["node", MCP], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL, text=True, env=environment)
        self.last = 0
        self.ask("initialize", protocolVersion="2025-03-26", capabilities={}, clientInfo={"name": "muster", "version": "0"})
        self.say({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def close(self):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()

    def say(self, message):
        self.process.stdin.write(json.dumps(message) + "\n")
        self.process.stdin.flush()

    def ask(self, method, **params):
        self.last += 1
        self.say({"jsonrpc": "2.0", "id": self.last, "method": method, "params": params})
        while True:
            line = self.process.stdout.readline()
            assert line, "the client has ended"
            reply = json.loads(line)
            if reply.get("id") == self.last:
                break
        if "error" in reply:
            raise Refused(reply["error"]["message"])
        return reply["result"]

    def call(self, tool, **arguments):
        result = self.ask("tools/call", name=tool, arguments=arguments)
        text = "".join(part["text"] for part in result["content"] if part["type"] == "text")
        if result.get("isError"):
            raise Refused(text)
        return json.loads(text) if text.startswith(("{", "[")) else text

    def schema(self, tool):
        return next(t["inputSchema"] for t in self.ask("tools/list")["tools"] if t["name"] == tool)


class RunPod(Beside):
    plays = "runpod"

    def client(self, key=TOKEN):
        client = Client(self.url, key)
        self.addCleanup(client.close)
        return client

    def test_each_sees_the_other(self):
        client = self.client()
        kinds = {k["id"]: k for k in client.call("list-gpu-types", include=["AVAILABILITY"], product=["POD"])["gpus"]}
        self.assertEqual(kinds[GPU]["price"]["secure"], 0.69)
        theirs = client.call("create-pod", body={
            "name": "not-of-the-fleet", "image": "debian", "gpu": {"id": GPU, "count": 1}, "cloud": "SECURE",
            "dataCenterIds": ["US-KS-2"], "env": {"TAG_MUSTER_FLEET": "another"}})
        self.assertEqual(theirs["dataCenterId"], "US-KS-2")
        there = lambda: {p["id"] for p in client.call("list-pods")["pods"]}
        self.start_controller(2, f"""
    endpoint: {self.url}/v2
    image: debian
    offers: [ {{ name: small, type: {GPU}, zones: [EU-RO-1] }} ]
""", {"RUNPOD_API_KEY": TOKEN})
        wait(lambda: len(there()) == 3, "two Pods of ours")
        first = client.call("get-pod", id=min(there() - {theirs["id"]}))
        self.assertEqual(first["env"]["TAG_MUSTER_FLEET"], "muster")
        self.assertEqual(first["env"]["TAG_MUSTER_INTENT"], first["name"])
        self.assertEqual((first["gpu"]["id"], first["dataCenterId"]), (GPU, "EU-RO-1"))

        # What the client deletes, the controller misses and buys anew.
        client.call("delete-pod", id=first["id"])
        wait(lambda: len(there()) == 3 and first["id"] not in there(), "the lost one is replaced")
        self.assertEqual(client.call("get-pod", id=theirs["id"])["name"], "not-of-the-fleet")
        self.assert_understood()

    def test_refusals(self):
        with self.assertRaisesRegex(Refused, "401"):
            self.client("wrong").call("list-pods")
        with self.assertRaisesRegex(Refused, "404"):
            self.client().call("delete-pod", id="pod987654")

    @unittest.skipUnless(importlib.util.find_spec("jsonschema"), "jsonschema is not installed")
    def test_orders_are_as_the_schemas_say(self):
        """Each create that t_web_runpod makes, over all faults, and what the client was generated with."""
        import jsonschema

        judge = jsonschema.Draft202012Validator(self.client().schema("create-pod"))
        with tempfile.TemporaryDirectory() as folder:
            record = pathlib.Path(folder) / "requests"
            subprocess.run([os.environ["T_WEB_RUNPOD_BIN"]], env=dict(os.environ, MUSTER_RUNPOD_RECORD=str(record)),
                           check=True, capture_output=True, timeout=LIMIT_S)
            requests = [json.loads(line) for line in record.read_text().splitlines()]
        orders = [json.loads(r["body"]) for r in requests if r["method"] == "POST"]
        self.assertGreater(len(orders), 50)
        for order in orders:
            judge.validate({"body": order})
        for wrong in ({"name": 1}, {"gpu": {"count": 1}}, {"gpu": {"id": GPU, "count": 0}}, {"disk": 0}, {"env": {"A": 1}},
                      {"dataCenterIds": "US-KS-2"}, {"cloud": "DARK"}, {"image": None}):
            with self.assertRaises(jsonschema.ValidationError, msg=str(wrong)):
                judge.validate({"body": {**orders[0], **wrong}})


if __name__ == "__main__":
    unittest.main()
