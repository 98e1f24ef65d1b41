#!/usr/bin/env python3
"""Writes Kubernetes' published API description as one JSON Schema a kind, for kubeconform.

    schemas.py SWAGGER.json FOLDER
    kubeconform -strict -schema-location 'FOLDER/{{.ResourceKind}}{{.KindSuffix}}.json' MANIFEST...

Each file holds its kind and all definitions that the kind refers to, so that nothing is looked up elsewhere.
Fields that the API does not have are errors, as with kubectl's strict validation.
"""
import json
import os
import sys

# The description calls these strings. The API takes numbers too.
STRING_OR_NUMBER = {"oneOf": [{"type": "string"}, {"type": "number"}]}
LOOSE = {
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": STRING_OR_NUMBER,
    "io.k8s.apimachinery.pkg.api.resource.Quantity": STRING_OR_NUMBER,
}


def definition(name, swagger):
    """Returns the definition without prose, and without fields of unknown names."""
    if name in LOOSE:
        return LOOSE[name]
    return strict(swagger[name])


def strict(node):
    """Copies a part of a schema; closes each object that lists its fields."""
    if isinstance(node, list):
        return [strict(item) for item in node]
    if not isinstance(node, dict):
        return node
    out = {}
    for key, value in node.items():
        if key == "properties":
            # Names of fields, not of schema words: one of them may be called `description`.
            out[key] = {field: strict(schema) for field, schema in value.items()}
        elif key not in ("description", "format") and not key.startswith("x-kubernetes-"):
            out[key] = strict(value)
    if out.get("properties") and "additionalProperties" not in out:
        out["additionalProperties"] = False
    return out


def references(node):
    """Yields the names of the definitions that a schema refers to."""
    if isinstance(node, list):
        for item in node:
            yield from references(item)
    elif isinstance(node, dict):
        for key, value in node.items():
            if key == "properties":
                # CustomResourceDefinition has a field of the name "$ref".
                yield from references(list(value.values()))
            elif key == "$ref":
                yield value.rpartition("/")[2]
            else:
                yield from references(value)


def closure(name, swagger):
    """Returns all definitions that a kind needs, itself included."""
    found, waiting = {}, [name]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found[name] = definition(name, swagger)
            waiting.extend(references(found[name]))
    return found


def main():
    if len(sys.argv) != 3:
        print(__doc__.strip())
        return 0 if sys.argv[1:] in (["-h"], ["--help"]) else 2
    with open(sys.argv[1], encoding="utf-8") as file:
        swagger = json.load(file)["definitions"]
    os.makedirs(sys.argv[2], exist_ok=True)
    for name, schema in swagger.items():
        for kind in schema.get("x-kubernetes-group-version-kind", []):
            # Kinds such as DeleteOptions belong to every group; only objects have files of their own.
            if "metadata" not in schema.get("properties", {}):
                continue
            group = kind["group"].partition(".")[0]
            words = [kind["kind"], *filter(None, [group]), kind["version"]]
            needs = closure(name, swagger)
            api_version = (kind["group"] + "/" if kind["group"] else "") + kind["version"]
            needs[name]["properties"]["apiVersion"] = {"enum": [api_version]}
            needs[name]["properties"]["kind"] = {"enum": [kind["kind"]]}
            needs[name]["required"] = sorted({"apiVersion", "kind", *needs[name].get("required", [])})
            path = os.path.join(sys.argv[2], "-".join(words).lower() + ".json")
            with open(path, "w", encoding="utf-8") as file:
                json.dump({"$ref": "#/definitions/" + name, "definitions": needs}, file, sort_keys=True)
    return 0


sys.exit(main())
