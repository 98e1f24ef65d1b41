#!/usr/bin/env python3
"""Writes helm/muster/files/musterservices.yaml: the definition of MusterService, whose spec is a service of muster.yaml.

    build/muster config schema | helm/crd.py            writes the file
    build/muster config schema | helm/crd.py --check    says whether the file is what would be written

The settings come from the program and become a structural schema, as the API server wants it: one type for each value,
nothing but what is listed (the API server refuses or prunes the rest). Defaults stay words in the descriptions: written
into objects they would outlive the release that they belong to. The exception is a pool's provider, because a service
of a cluster's object runs on the cluster.
"""
import json
import os
import re
import sys

OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "muster", "files", "musterservices.yaml")
HEAD = """# musterservices.yaml - the definition of MusterService, made by helm/crd.py from `muster config schema`.
"""
TEXT_BYTES_MAX = 4096  # of a text whose setting names no bound
# Settings that are other names of others, for files of earlier releases.
FORMER = {"row_watts"}


def structural(schema, path):
    """Turns one value of the configuration's schema into one of a structural schema."""
    out = {}
    about = schema.get("description", "")
    if "default" in schema and schema["default"] not in ("", None):
        value = schema["default"]
        about += f" Default: {json.dumps(value) if not isinstance(value, str) else value}."
    out["description"] = about
    if "anyOf" in schema:  # a duration or a size: text with a unit, or a number
        text = next(one for one in schema["anyOf"] if one.get("type") == "string")
        whole = next(one for one in schema["anyOf"] if one.get("type") == "integer")
        least = whole.get("minimum", whole.get("const"))
        most = whole.get("maximum", whole.get("const"))
        return {**out, "x-kubernetes-int-or-string": True, "pattern": text["pattern"], "minimum": least, "maximum": most}
    if "enum" in schema:
        return {**out, "type": "string", "enum": schema["enum"]}
    kind = schema["type"] if isinstance(schema["type"], str) else schema["type"][0]
    out["type"] = kind
    if kind == "string":
        out["maxLength"] = schema.get("maxLength", TEXT_BYTES_MAX)
        if path.endswith(".name") or path.endswith(".model") and path.count(".") == 1:
            out["minLength"] = 1
    elif kind in ("integer", "number"):
        if kind == "integer":
            out["format"] = "int64"
        out.update({key: schema[key] for key in ("minimum", "maximum") if key in schema})
    elif kind == "array":
        out["items"] = structural(schema["items"], path + "[]")
        out.update({key: schema[key] for key in ("minItems", "maxItems") if schema.get(key)})
        named = "name" in schema["items"].get("properties", {})
        out["x-kubernetes-list-type"] = "map" if named else "atomic"
        if named:
            out["x-kubernetes-list-map-keys"] = ["name"]
    elif kind == "object":
        out["properties"] = {name: structural(value, f"{path}.{name}") for name, value in schema["properties"].items()
                             if name not in FORMER}
        if schema.get("required"):
            out["required"] = schema["required"]
    return out


def spec(config):
    service = structural(config["services"]["items"], "spec")
    properties = service["properties"]
    properties["name"]["description"] = "Name of the service, the model that clients ask for; absent: the object's name."
    service["required"] = [name for name in service["required"] if name != "name"]
    provider = properties["pools"]["items"]["properties"]["provider"]
    provider["description"] = "The cloud driver that its instances come from."
    provider["default"] = "kubernetes"
    properties["replicas"] = {
        "description": "Instances that a person or another autoscaler wants, as `kubectl scale` writes it; absent: the "
                       "scaling policy decides. Shared among the pools: their minima first, then in their order up to "
                       "their maxima. A later `muster scale` holds until this changes again.",
        "type": "integer", "format": "int32", "minimum": 0, "maximum": 2048}
    service["properties"] = dict(sorted(properties.items(), key=lambda item: item[0] not in ("name", "model", "replicas")))
    service["description"] = "A model to serve, with its SLO, its budget and its pools: one of `services` of muster.yaml."
    return service


def whole(about, **more):
    return {"description": about, "type": "integer", "format": "int64", **more}


def number(about):
    return {"description": about, "type": "number"}


def text(about, **more):
    return {"description": about, "type": "string", **more}


def record(about, properties, required=()):
    return {"description": about, "type": "object", "properties": properties,
            **({"required": list(required)} if required else {})}


def status():
    condition = record("One aspect of the service.", {
        "type": text("Accepted, Ready, Progressing, BudgetReached or StockedOut."),
        "status": text("Whether it holds.", enum=["True", "False", "Unknown"]),
        "reason": text("A word for programs."),
        "message": text("A sentence for people."),
        "lastTransitionTime": text("When `status` last changed.", format="date-time"),
        "observedGeneration": whole("Generation of the object that it is about."),
    }, ["type", "status", "reason", "message", "lastTransitionTime"])
    pool = record("Instances of one pool.", {
        "name": text("Its name."),
        "ready": whole("Instances that take requests."),
        "instances": whole("All that live, those that start and drain included."),
        "desired": whole("Instances that the last decision wants."),
    }, ["name"])
    return record("What the controller says of the service.", {
        "observedGeneration": whole("Generation of the object that this is about."),
        "replicas": whole("Instances that live, over all pools."),
        "selector": text("Selects the Pods of its instances, for autoscalers; those of other providers are no Pods."),
        "ready": whole("Instances that take requests."),
        "desired": whole("Instances that the last decision wants."),
        "attainment": number("Share of the requests of the last five minutes that met the SLO; absent: there were none."),
        "dollarsPerHour": number("What its instances cost now."),
        "reason": text("Why the last decision wants so many instances."),
        "blocked": text("What held a part of the last decision back; absent: nothing."),
        "pools": {"description": "The same by pool.", "type": "array", "items": pool, "maxItems": 8,
                  "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
        "conditions": {"description": "Aspects of the service.", "type": "array", "items": condition, "maxItems": 16,
                       "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
    })


def column(name, kind, path, about, **more):
    return {"name": name, "type": kind, "jsonPath": path, "description": about, **more}


def definition(config):
    columns = [
        column("Accepted", "string", '.status.conditions[?(@.type=="Accepted")].status', "The specification is in force."),
        column("Ready", "string", '.status.conditions[?(@.type=="Ready")].status', "Requests are served."),
        column("Instances", "integer", ".status.ready", "Instances that take requests."),
        column("Desired", "integer", ".status.desired", "Instances that are wanted."),
        column("SLO", "number", ".status.attainment", "Share of requests that met the SLO."),
        column("$/h", "number", ".status.dollarsPerHour", "What its instances cost an hour."),
        column("Reason", "string", ".status.reason", "Why so many are wanted.", priority=1),
        column("Model", "string", ".spec.model", "The model.", priority=1),
        column("Age", "date", ".metadata.creationTimestamp", "Since the object was made."),
    ]
    schema = record("A service of a Muster fleet.", {
        "apiVersion": text("Version of this form."), "kind": text("MusterService."), "metadata": {"type": "object"},
        "spec": spec(config), "status": status()}, ["spec"])
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        # Uninstalling a chart must not delete the services of everybody on the cluster.
        "metadata": {"name": "musterservices.muster.dev", "annotations": {"helm.sh/resource-policy": "keep"}},
        "spec": {
            "group": "muster.dev",
            "scope": "Namespaced",
            "names": {"kind": "MusterService", "listKind": "MusterServiceList", "plural": "musterservices",
                      "singular": "musterservice", "shortNames": ["msvc"], "categories": ["all"]},
            "versions": [{
                "name": "v1alpha1", "served": True, "storage": True,
                "subresources": {"status": {}, "scale": {
                    "specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas",
                    "labelSelectorPath": ".status.selector"}},
                "additionalPrinterColumns": columns,
                "schema": {"openAPIV3Schema": schema},
            }],
        },
    }


# ---- YAML; the standard library has none. Texts are quoted as JSON, which is YAML ----


def put(value, indent, out):
    pad = " " * indent
    if isinstance(value, dict):
        for key, item in value.items():
            key = key if re.fullmatch("[-_./a-zA-Z0-9]+", key) else json.dumps(key)
            put_item(f"{pad}{key}:", item, indent, out)
    else:
        for item in value:
            if isinstance(item, dict):
                inner = []
                put(item, indent + 2, inner)
                out.append(f"{pad}- {inner[0].lstrip()}")
                out.extend(inner[1:])
            else:
                out.append(f"{pad}- {json.dumps(item)}")


def put_item(head, item, indent, out):
    if isinstance(item, (dict, list)) and item:
        out.append(head)
        put(item, indent + 2, out)
    else:
        out.append(f"{head} {json.dumps(item, ensure_ascii=False)}")


def main():
    arguments = sys.argv[1:]
    if arguments not in ([], ["--check"]):
        print(__doc__.strip())
        return 0 if arguments in (["-h"], ["--help"]) else 2
    try:
        config = json.load(sys.stdin)["properties"]
    except (ValueError, KeyError) as problem:
        print(f"crd.py: standard input is not what `muster config schema` prints: {problem}", file=sys.stderr)
        return 2
    lines = []
    put(definition(config), 0, lines)
    made = HEAD + "\n".join(lines) + "\n"
    if not arguments:
        os.makedirs(os.path.dirname(OUT), exist_ok=True)
        with open(OUT, "w", encoding="utf-8") as file:
            file.write(made)
        return 0
    if os.path.exists(OUT):
        with open(OUT, encoding="utf-8") as file:
            if file.read() == made:
                return 0
    print("helm/muster/files/musterservices.yaml is not made from this program's settings;\n"
          "run: build/muster config schema | helm/crd.py")
    return 1


sys.exit(main())
