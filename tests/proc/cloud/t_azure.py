"""t_azure.py - tests each request that t_web_azure makes of Azure's Compute API against the provider's Python library: the
URL against what the library itself would ask for, the body against the library's models, member by member.

Skipped where the library is not installed (azure-mgmt-compute). MUSTER_AZURE_PYTHON names a Python that has it.
"""

import enum
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import typing
import unittest
import urllib.parse

SKIPPED = 77
LIMIT_S = 120  # ends what hangs
API = "https://management.azure.com"
VERSION = "2024-11-01"  # that the driver names; the library's own is later


def library_or_skip():
    try:
        import azure.mgmt.compute

        return azure.mgmt.compute
    except ImportError:
        other = os.environ.pop("MUSTER_AZURE_PYTHON", None)  # tried once
        if other:
            os.execv(other, [other, *sys.argv])
        print("skipped: the Python library azure-mgmt-compute is not installed")
        sys.exit(SKIPPED)


library_or_skip()
from azure.mgmt.compute import models  # noqa: E402
from azure.mgmt.compute.operations import _operations as built  # noqa: E402

PLAIN = {str: str, int: int, bool: bool, float: (int, float)}


# ---- bodies against the models ----


def check_model(value, model, where):
    fields = {f._rest_name: (name, f) for name, f in type(model({}))._attr_to_rest_field.items()}
    hints = typing.get_type_hints(model, localns={"_models": models, "_types": models})
    if not isinstance(value, dict):
        raise AssertionError(f"{where}: no object")
    for key, member in value.items():
        if key not in fields:
            raise AssertionError(f"{where}: {model.__name__} has no member {key}")
        name, field = fields[key]
        if field._visibility == ["read"]:
            raise AssertionError(f"{where}.{key}: it is the provider's to say")
        check(member, hints[name], f"{where}.{key}")


def check_union(value, hints, where):
    names = [h for h in hints if isinstance(h, type) and issubclass(h, enum.Enum)]
    if names and names[0] is not models.VirtualMachineSizeTypes:  # whose list ends years ago, as it says itself
        if value not in [e.value for e in names[0]]:
            raise AssertionError(f"{where}: {value!r} is none of {[e.value for e in names[0]]}")
        return
    hints = [h for h in hints if h is not type(None) and h not in names]
    if len(hints) != 1:
        raise AssertionError(f"{where}: the test does not know {hints}")
    check(value, hints[0], where)


def check(value, hint, where):
    """Raises where a value is not of the type that a model declares."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Union:
        check_union(value, inner, where)
    elif origin is list:
        if not isinstance(value, list):
            raise AssertionError(f"{where}: no list")
        for i, item in enumerate(value):
            check(item, inner[0], f"{where}[{i}]")
    elif origin is dict:
        if not isinstance(value, dict):
            raise AssertionError(f"{where}: no object")
        for key, item in value.items():
            check(item, inner[1], f"{where}.{key}")
    elif hint in PLAIN:
        if not isinstance(value, PLAIN[hint]) or (hint is not bool and isinstance(value, bool)):
            raise AssertionError(f"{where}: {value!r} is no {hint.__name__}")
    else:
        check_model(value, hint, where)


# ---- URLs against the library's own ----


def parts(url):
    split = urllib.parse.urlsplit(url)
    query = dict(urllib.parse.parse_qsl(split.query, keep_blank_values=True))
    version = query.pop("api-version", None)
    return split.path, query, version


def want(request):
    """Returns the library's request of the same name and method, or None where a reply named the URL."""
    path, query, _ = parts(request["url"])
    names = path.split("/")
    if "operations" in names or "$skiptoken" in query:
        return None
    subscription, group = names[2], names[4]
    if len(names) == 8:
        return built.build_virtual_machines_list_request(group, subscription, expand="instanceView")
    vm = {"resource_group_name": group, "vm_name": names[8], "subscription_id": subscription}
    if request["method"] == "PUT":
        return built.build_virtual_machines_create_or_update_request(**vm)
    if names[-1] == "deallocate":
        return built.build_virtual_machines_deallocate_request(**vm)
    if names[-1] == "start":
        return built.build_virtual_machines_start_request(**vm)
    if request["method"] == "DELETE":
        return built.build_virtual_machines_delete_request(**vm, force_deletion=True)
    return built.build_virtual_machines_get_request(**vm)


def check_request(request):
    """Returns what was called."""
    other = want(request)
    path, query, version = parts(request["url"])
    if version != VERSION:
        raise AssertionError(f"api-version is {version}")
    if other is None:
        return "GET of a link"
    if (request["method"], path, query) != (other.method, *parts(other.url)[:2]):
        raise AssertionError(f"{request['method']} {request['url']}, not {other.method} {other.url}")
    if request["method"] == "PUT":
        check_model(json.loads(request["body"]), models.VirtualMachine, "machine")
    if path.count("/") == 9:
        return path.rsplit("/", 1)[1]
    return f"{request['method']} of {'one' if path.count('/') == 8 else 'all'}"


class Library(unittest.TestCase):
    def test_requests_are_the_librarys(self):
        with tempfile.TemporaryDirectory() as folder:
            record = pathlib.Path(folder) / "requests"
            subprocess.run([os.environ["T_WEB_AZURE_BIN"]], env=dict(os.environ, MUSTER_AZURE_RECORD=str(record)),
                           check=True, capture_output=True, timeout=LIMIT_S)
            requests = [json.loads(line) for line in record.read_text().splitlines()]
        called = {check_request(r) for r in requests if r["url"].startswith(API)}
        self.assertEqual(called, {"PUT of one", "GET of one", "DELETE of one", "GET of all", "GET of a link",
                                  "deallocate", "start"})
        self.assertGreater(len(requests), 500)

    def test_the_judge_sees_what_is_wrong(self):
        url = f"{API}/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/vm"
        for request in (
            {"method": "PUT", "url": f"{url}?api-version={VERSION}", "body": '{"colour": "red"}'},
            {"method": "PUT", "url": f"{url}?api-version={VERSION}", "body": '{"zones": "1"}'},
            {"method": "PUT", "url": f"{url}?api-version={VERSION}", "body": '{"properties": {"priority": "Cheap"}}'},
            {"method": "PUT", "url": f"{url}?api-version={VERSION}",
             "body": '{"properties": {"storageProfile": {"osDisk": {"diskSizeGB": "10"}}}}'},
            {"method": "PUT", "url": f"{url}?api-version={VERSION}", "body": '{"properties": {"vmId": "x"}}'},
            {"method": "PUT", "url": f"{url}?api-version={VERSION}&force=1", "body": "{}"},
            {"method": "PATCH", "url": f"{url}?api-version={VERSION}", "body": "{}"},
            {"method": "GET", "url": f"{url}/start?api-version={VERSION}", "body": ""},
            {"method": "POST", "url": f"{url}/deallocate?api-version={VERSION}&now=1", "body": ""},
            {"method": "GET", "url": url, "body": ""},
        ):
            with self.assertRaises(AssertionError, msg=request):
                check_request(request)


if __name__ == "__main__":
    unittest.main()
