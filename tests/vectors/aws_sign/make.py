#!/usr/bin/env python3
"""make.py [SUITE] - writes vectors.json beside this file: requests and their signatures, none of them made by Muster.

SUITE is the folder of the signature suite that Amazon publishes (aws4_testsuite, as botocore's sources have it); the
other half is signed by botocore itself: forms as the driver of EC2 sends them, with texts that need an escape, without
and with a session token. Suite cases that want something of a caller (a path to be normalised, a header given twice,
bytes to be escaped) are left out and counted.
"""
import datetime
import json
import os
import random
import sys
from unittest import mock

import botocore.auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from urllib.parse import urlencode

HERE = os.path.dirname(os.path.abspath(__file__))
KEY = ("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY")
OWN = {"host", "x-amz-date", "x-amz-security-token"}


def suite_case(folder, name):
    """A case of the suite, or None where it wants more than a signature."""
    base = os.path.join(folder, os.path.basename(folder))
    text = open(base + ".req", encoding="utf-8").read()
    head, _, body = text.partition("\n\n")
    first, *lines = head.split("\n")
    method, _, target = first.partition(" ")
    target = target.rsplit(" ", 1)[0]
    path, _, query = target.partition("?")
    if name.startswith("normalize-path/") or not target.isascii() or " " in target:
        return None
    headers = []
    for line in lines:
        if line[:1] in " \t":
            return None
        key, _, value = line.partition(":")
        headers.append([key.lower(), value])
    if len({k for k, _ in headers}) < len(headers):
        return None
    given = dict(headers)
    sent = open(base + ".sreq", encoding="utf-8").read().split("\n\n")[0].split("\n")[1:]
    given.update((line.partition(":")[0].lower(), line.partition(":")[2]) for line in sent)
    authorization = open(base + ".authz", encoding="utf-8").read().strip()
    signed = authorization.split("SignedHeaders=")[1].split(",")[0].split(";")
    return {"name": "suite " + name, "method": method, "host": given["host"], "path": path, "query": query,
            "headers": [[k, v] for k, v in headers if k not in OWN and k in signed], "body": body,
            "region": "us-east-1", "service": "service", "id": KEY[0], "secret": KEY[1],
            "token": given.get("x-amz-security-token", "") if "x-amz-security-token" in signed else "",
            "date": "20150830T123600Z", "authorization": authorization}


def signed_case(i, rng):
    """A form like the driver's, signed by botocore."""
    texts = ["", "a b", "x+y=z&w", "/dev/xvda", "ünïcode", "~-._", "%41", "A" * 300]
    form = {"Action": rng.choice(["RunInstances", "DescribeInstances"]), "Version": "2016-11-15"}
    for n in range(rng.randrange(12)):
        form["TagSpecification.1.Tag.%d.Value" % (n + 1)] = rng.choice(texts)
    body = urlencode(form)
    region = rng.choice(["eu-central-1", "us-east-1", "cn-north-1"])
    service = rng.choice(["ec2", "pricing"])
    host = "%s.%s.amazonaws.com%s" % (service, region, rng.choice(["", ":8443"]))
    token = rng.choice(["", "FwoGZXIvYXdzEBYaDH/+=" * rng.randrange(1, 30)])
    when = datetime.datetime(2026, 1, 1) + datetime.timedelta(seconds=rng.randrange(400000000))
    headers = [["content-type", "application/x-www-form-urlencoded; charset=utf-8"]]
    if service == "pricing":
        headers.append(["x-amz-target", "AWSPriceListService.GetProducts"])
    secret = "".join(rng.choice("abcXYZ019/+") for _ in range(40))
    request = AWSRequest("POST", "https://" + host + "/", headers=dict(headers), data=body)
    with mock.patch("botocore.auth.get_current_datetime", create=True, return_value=when), \
            mock.patch("botocore.auth.datetime") as clock:
        clock.datetime.utcnow.return_value = when
        clock.datetime.now.return_value = when
        botocore.auth.SigV4Auth(Credentials(KEY[0], secret, token or None), service, region).add_auth(request)
    assert request.headers["X-Amz-Date"] == when.strftime("%Y%m%dT%H%M%SZ")
    return {"name": "botocore %d" % i, "method": "POST", "host": host, "path": "/", "query": "", "headers": headers,
            "body": body, "region": region, "service": service, "id": KEY[0], "secret": secret, "token": token,
            "date": request.headers["X-Amz-Date"], "authorization": request.headers["Authorization"]}


def main():
    cases, left = [], 0
    for folder, _, files in sorted(os.walk(sys.argv[1])) if len(sys.argv) > 1 else []:
        if any(f.endswith(".req") for f in files):
            case = suite_case(folder, os.path.relpath(folder, sys.argv[1]))
            cases += [case] if case else []
            left += case is None
    rng = random.Random(18)
    cases += [signed_case(i, rng) for i in range(40)]
    with open(os.path.join(HERE, "vectors.json"), "w", encoding="utf-8") as out:
        out.write("[\n" + ",\n".join(json.dumps(c, sort_keys=True) for c in cases) + "\n]\n")
    print("%d cases, %d of the suite left out" % (len(cases), left))


main()
