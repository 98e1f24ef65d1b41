#!/usr/bin/env python3
"""Writes helm/muster/values.schema.json: the chart's own keys, and settings of muster.yaml where values pass them on.

    build/muster config schema | helm/schema.py            writes the file
    build/muster config schema | helm/schema.py --check    says whether the file is what would be written

Settings come from the program, so that a new one is known to the chart once this was run again. Each object refuses
keys that it does not list, as a misspelt key would otherwise be ignored.
"""
import json
import os
import sys

OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "muster", "values.schema.json")

# Settings that the chart sets itself: addresses, paths and names of its own objects.
OWN = {
    "controller": {"listen", "state", "secret_file", "agents_reach", "store", "store_password_file", "store_fleet",
                   "store_ca", "store_certificate", "store_key",
                   "controllers", "tls_certificate", "tls_key", "tls_ca",
                   "metrics_key_file", "crash_at"},
    "router": {"listen", "controller", "controllers", "secret_file", "name", "keys_file", "predict_file", "tls_certificate",
               "tls_key", "tls_ca", "metrics_key_file", "trace_endpoint", "trace_headers_file"},
    "kubernetes": {"kubeconfig", "context", "namespace", "fleet", "image", "image_pull", "pod", "owner",
                   "priority_class", "offers", "services"},
    "engine": {"model", "listen", "served_model_name", "secret_file", "instance", "metrics_key_file", "fault",
               "trace_endpoint", "trace_headers_file"},
    "agent": {"spec", "listen", "engine_host", "engine_port"},
    "service": {"name", "model", "pools"},
    "pool": {"name", "provider", "offers"},
    "offer": {"name", "resources", "node_labels", "pod"},
}


# ---- words of JSON Schema ----


def text(about, **more):
    return {"type": "string", "description": about, **more}


def flag(about):
    return {"type": "boolean", "description": about}


def number(about, least, most=None):
    return {"type": "integer", "description": about, "minimum": least, **({} if most is None else {"maximum": most})}


def nullable(schema):
    return {**schema, "type": [schema["type"], "null"]}


def listing(about, items=None):
    return {"type": "array", "description": about, "items": items or {"type": "object"}}


def texts(about):
    return {"type": "object", "description": about, "additionalProperties": {"type": "string"}}


def anything(about):
    """An object of Kubernetes, which the API server checks."""
    return {"type": "object", "description": about}


def record(about, properties, required=()):
    schema = {"type": "object", "description": about, "additionalProperties": False, "properties": properties}
    return {**schema, "required": sorted(required)} if required else schema


QUANTITIES = {"type": "object", "additionalProperties": {
    "anyOf": [{"type": "string", "pattern": "^[0-9]+([.][0-9]+)?(m|k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?$"},
              {"type": "number", "minimum": 0}]}}
DNS_LABEL = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
SECONDS = "^[0-9]+(ms|s|m|h)$"


# ---- parts that occur several times ----


def shared(name):
    """Refers to one of the definitions that main() writes."""
    return {"$ref": "#/definitions/" + name}


def image(about):
    return record(about, {
        "repository": text("Name without tag, registry included."),
        "tag": text("Empty: the chart's appVersion."),
        "digest": text("sha256:...; comes before the tag.", pattern="^(sha256:[0-9a-f]{64})?$"),
        "pullPolicy": {"enum": ["Always", "IfNotPresent", "Never"]},
    })


def account():
    return record("Its service account.", {
        "create": flag("Make it."),
        "name": text("Empty: a name of the release."),
        "annotations": texts("Annotations of the account."),
    })


def placement():
    return {
        "podLabels": texts("Further labels of its Pods."),
        "podAnnotations": texts("Further annotations of its Pods."),
        "nodeSelector": texts("Labels that its nodes have."),
        "tolerations": listing("Taints that it tolerates."),
        "affinity": anything("Affinity of its Pods."),
        "topologySpreadConstraints": listing("How its Pods are spread."),
        "priorityClassName": text("Its priority class."),
    }


def resources():
    return record("Resources of its container.", {
        "requests": QUANTITIES, "limits": QUANTITIES, "claims": listing("Claims of devices.")})


def extras():
    return {
        "extraArgs": listing("Further arguments of the command.", {"type": "string"}),
        "extraEnv": listing("Further environment."),
        "extraVolumes": listing("Further volumes."),
        "extraVolumeMounts": listing("Further mounts."),
    }


def service(more=None):
    return record("Its Service.", {
        "type": {"enum": ["ClusterIP", "NodePort", "LoadBalancer"]},
        "port": number("Port of the Service.", 1, 65535),
        "annotations": texts("Annotations of the Service."),
        **(more or {}),
    })


def scaled():
    return {
        "enabled": flag("Make it."),
        "minReplicas": number("Routers at least.", 1),
        "maxReplicas": number("Routers at most.", 1),
    }


def monitor(about):
    return record(about, {
        "enabled": flag("Make it."),
        "labels": texts("Labels by which the operator finds it."),
        "interval": text("Time between two looks.", pattern=SECONDS),
        "scrapeTimeout": text("Time for one look.", pattern=SECONDS),
    })


def model():
    where = {"claimName": text("The claim's name."), "subPath": text("Folder of the volume.")}
    return record("Where the service's model is.", {
        "path": text("Path of the model in the instance's container.", minLength=1),
        "mountPath": text("Where the volume is mounted.", pattern="^/.+"),
        "pvc": record("A claim that holds it.", where, ["claimName"]),
        "hostPath": record("A folder of the node.", {"path": text("The folder.", pattern="^/"),
                                                     "type": text("As in Kubernetes.")}, ["path"]),
        "image": record("An OCI image as a volume.", {"reference": text("The image."),
                                                      "pullPolicy": {"enum": ["Always", "IfNotPresent", "Never"]}},
                        ["reference"]),
        "emptyDir": record("An empty folder, which `pull` fills.", {
            "sizeLimit": text("Its bytes at most."), "medium": {"enum": ["", "Memory"]}}),
        "pull": {**anything("An init container that brings the model: image, command, args, env, resources."),
                 "required": ["image"]},
    }, ["path"])


# ---- the chart ----


def settings(source, name, about):
    """The settings of a section but those that the chart sets."""
    return record(about, without(source, OWN[name]))


def without(source, names):
    properties = source["properties"]
    return {key: clean(value) for key, value in properties.items() if key not in names}


def clean(schema):
    """Drops defaults: Helm does not take them from a schema, and values.yaml has the chart's."""
    if isinstance(schema, list):
        return [clean(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    return {key: clean(value) for key, value in schema.items() if key != "default"}


def needs(source, names, more):
    return [key for key in source.get("required", []) if key not in names] + more


def accelerators(config):
    offer = config["kubernetes"]["properties"]["offers"]["items"]
    one = record("Capacity that nodes have: resources and price of an instance, and the nodes.", {
        "resources": {**QUANTITIES, "description": "Resources of an instance, limits and requests alike."},
        "requests": {**QUANTITIES, "description": "Where they are to be less than `resources`."},
        "nodeLabels": texts("Labels that its nodes have."),
        "tolerations": listing("Taints that it tolerates."),
        "affinity": anything("Affinity of its Pods."),
        "claims": listing("Devices by DRA.", {"type": "object", "required": ["name"]}),
        "runtimeClassName": text("Runtime class of its Pods."),
        "image": shared("image"),
        "agent": shared("agent"),
        "shmSize": text("Size of /dev/shm."),
        "env": listing("Environment of the engine."),
        **without(offer, OWN["offer"]),
    }, needs(offer, OWN["offer"], []))
    return {"type": "object", "description": "Kinds of capacity, by name.", "additionalProperties": one,
            "propertyNames": {"pattern": DNS_LABEL}}


def services(config):
    source = config["services"]["items"]
    pools = source["properties"]["pools"]
    pool = record("Instances of one kind.", {
        "name": text("Name of the pool, unique within its service.", minLength=1, maxLength=63),
        "accelerators": {"type": "array", "description": "What its instances run on; `place` chooses among them.",
                         "items": {"type": "string"}, "minItems": 1,
                         "maxItems": pools["items"]["properties"]["offers"]["maxItems"]},
        "env": listing("Environment of its engines."),
        "initContainers": listing("Init containers of its Pods."),
        "extraVolumes": listing("Further volumes of its Pods."),
        "extraVolumeMounts": listing("Further mounts of its engines."),
        "image": shared("image"),
        "agent": shared("agent"),
        **without(pools["items"], OWN["pool"]),
    }, needs(pools["items"], OWN["pool"], ["name", "accelerators"]))
    one = record("A model to serve.", {
        "name": text("Name of the service: the model that clients ask for.", minLength=1, maxLength=63),
        "model": model(),
        "pools": {"type": "array", "description": pools["description"], "minItems": 1, "items": pool,
                  "maxItems": pools["maxItems"]},
        "podDisruptionBudget": record("Evictions wait while no more instances are ready.", {
            "minAvailable": number("Instances.", 1)}, ["minAvailable"]),
        **without(source, OWN["service"]),
    }, needs(source, OWN["service"], ["name", "model", "pools"]))
    return {"type": "array", "description": config["services"]["description"], "items": one}


def service_objects():
    volume = model()
    for key in ("path", "emptyDir", "pull"):
        del volume["properties"][key]
    del volume["required"]
    return record("Services as objects of the cluster.", {
        "enabled": flag("Take services also from MusterService objects."),
        "definition": flag("Make the CustomResourceDefinition; once on a cluster is enough."),
        "models": {**volume, "description": "The volume that their models are in."},
    })


def controller(config):
    return record("The part that decides how many instances there are.", {
        "replicas": number("Controllers.", 0),
        "settings": settings(config["controller"], "controller", "Settings of the `controller` section."),
        "store": record("A store that several controllers share.", {
            "kubernetes": flag("Keep it in a Lease, ConfigMaps and Secrets of the namespace."),
            "url": text("URL of a Redis; empty: a file in the volume.", pattern="^(rediss?([+][a-z]+)?://.+)?$"),
            "passwordSecret": record("Secret with its password.", {
                "name": text("The Secret's name."), "key": text("The key in it.", minLength=1)}),
            "tlsSecret": record("Secret with the certificates for its TLS.", {
                "name": text("The Secret's name; it has ca.crt."),
                "clientCertificate": flag("Show its tls.crt and tls.key to Redis.")}),
        }),
        "persistence": record("The volume of its store.", {
            "enabled": flag("Keep the store in a volume."),
            "size": text("Size of the volume."),
            "storageClass": text("Empty: the cluster's default; \"-\": none."),
            "accessModes": listing("As in Kubernetes.", {"type": "string"}),
            "existingClaim": text("A claim of yours instead."),
            "annotations": texts("Annotations of the claim."),
            "keep": flag("Leave the volume when the release is uninstalled."),
        }),
        "resources": resources(),
        "service": service(),
        "serviceAccount": account(),
        "terminationGracePeriodSeconds": number("From SIGTERM to SIGKILL.", 1),
        **extras(), **placement(),
    })


def router(config):
    return record("The part that takes requests.", {
        "replicas": number("Routers.", 0),
        "settings": settings(config["router"], "router", "Settings of the `router` section."),
        "resources": resources(),
        "service": service({
            "nodePort": nullable(number("Port of the nodes.", 1, 65535)),
            "loadBalancerClass": text("As in Kubernetes."),
            "loadBalancerSourceRanges": listing("As in Kubernetes.", {"type": "string"}),
            "externalTrafficPolicy": {"enum": ["", "Cluster", "Local"]},
        }),
        "serviceAccount": account(),
        "preStopSeconds": number("A Pod that ends takes requests for so long.", 0, 3600),
        "terminationGracePeriodSeconds": nullable(number("Empty: as long as a request may take.", 1)),
        "podDisruptionBudget": record("Of routers.", {
            "enabled": flag("Make it."),
            "maxUnavailable": {"type": ["integer", "string"], "description": "A number or a share."}}),
        "autoscaling": record("A HorizontalPodAutoscaler.", {
            **scaled(),
            "targetCPUUtilizationPercentage": number("Of the requested processor time.", 1, 1000),
            "metrics": listing("Instead of that target."),
            "behavior": anything("As in Kubernetes."),
        }),
        "keda": record("A ScaledObject of KEDA.", {
            **scaled(),
            "requestsPerReplica": number("Requests under way or held, for each router.", 1),
            "pollingInterval": number("Seconds.", 1),
            "behavior": anything("As in Kubernetes."),
        }),
        "ingress": record("An Ingress.", {
            "enabled": flag("Make it."),
            "className": text("Its class."),
            "annotations": texts("Its annotations."),
            "hosts": listing("Hosts.", record("A host.", {
                "host": text("Its name."), "path": text("Its path.", pattern="^/")}, ["host"])),
            "tls": listing("As in Kubernetes."),
        }),
        "httpRoute": record("An HTTPRoute of the Gateway API.", {
            "enabled": flag("Make it."),
            "parentRefs": listing("Gateways."),
            "hostnames": listing("Names.", {"type": "string"}),
            "annotations": texts("Its annotations."),
            "timeouts": anything("As in the Gateway API."),
        }),
        **extras(), **placement(),
    })


def instances(config):
    more = placement()
    del more["affinity"]
    return record("The Pods that the controller makes.", {
        "settings": settings(config["kubernetes"], "kubernetes", "Settings of the `kubernetes` section."),
        "agent": shared("agent"),
        "serviceAccount": account(),
        "env": listing("Environment of engines."),
        "initContainers": listing("Init containers."),
        "extraContainers": listing("Further containers."),
        "extraVolumes": listing("Further volumes."),
        "extraVolumeMounts": listing("Further mounts of engines."),
        **more,
    })


def chart(config):
    shared_image = image("The image of all parts.")
    shared_image["properties"]["pullSecrets"] = listing("Secrets to pull it with.")
    peers = "As `from` and `to` of a NetworkPolicy."
    return record("Values of the chart muster.", {
        "global": {"type": "object"},
        "nameOverride": text("Instead of the chart's name."),
        "fullnameOverride": text("Instead of the release's and the chart's name."),
        "commonLabels": texts("Labels of all objects."),
        "commonAnnotations": texts("Annotations of all objects."),
        "image": shared_image,
        "listenAddress": text("The address that controller and router listen on."),
        "auth": record("The fleet's secret.", {"existingSecret": text("A Secret of yours with it.")}),
        "accelerators": accelerators(config),
        "services": services(config),
        "engine": record("All engines.", {
            "settings": settings(config["engine"], "engine", "Settings of the `engine` section.")}),
        "serviceObjects": service_objects(),
        "controller": controller(config),
        "router": router(config),
        "instances": instances(config),
        "tls": record("TLS of controller and routers.", {
            "enabled": flag("Speak TLS."),
            "certManager": record("Certificates by cert-manager.", {
                "enabled": flag("Ask for them."),
                "issuerRef": record("The issuer.", {
                    "name": text("Its name."), "kind": text("Its kind."), "group": text("Its group.")}),
                "duration": text("How long a certificate is valid.", pattern="^[0-9]+h$"),
                "renewBefore": text("When it is renewed.", pattern="^[0-9]+h$"),
                "routerDnsNames": listing("Further names of the router.", {"type": "string"}),
            }),
            "controllerSecret": text("Secret with the controller's certificate."),
            "routerSecret": text("Secret with the router's certificate."),
        }),
        "networkPolicy": record("Who may talk to whom.", {
            "enabled": flag("Make the policies."),
            "routerFrom": listing(peers), "monitoringFrom": listing(peers), "kedaFrom": listing(peers), "apiServerTo": listing(peers),
            "dnsTo": listing(peers), "storeTo": listing(peers), "tracingTo": listing(peers),
            "tracingPorts": listing("Ports of the collector of traces.", number("A port.", 1, 65535)),
            "storePorts": listing("Ports of Redis and Sentinel.", number("A port.", 1, 65535)),
            "apiServerPorts": listing("Ports of the API server.", number("A port.", 1, 65535)),
            "instanceEgress": listing("Further rules of instances."),
        }),
        "monitoring": record("Metrics.", {
            "existingSecret": text("A Secret of yours with the key of scrapers."),
            "runbooksUrl": text("Where docs/runbooks is read on your site.", pattern="^(https?://.+)?$"),
            "serviceMonitor": monitor("Of controller and routers."),
            "podMonitor": monitor("Of engines."),
            "prometheusRule": record("Recording rules and alerts.", {
                "enabled": flag("Make it."), "labels": texts("Labels by which the operator finds it.")}),
            "dashboards": record("ConfigMaps for Grafana.", {
                "enabled": flag("Make them."), "labels": texts("Labels."), "annotations": texts("Annotations.")}),
        }),
        "tracing": record("Traces of requests.", {
            "endpoint": text("URL of the collector; empty: no traces.", pattern="^(https?://.+)?$"),
            "headersSecret": record("Secret with headers of calls to it.", {
                "name": text("The Secret's name."), "key": text("The key in it.", minLength=1)}),
            "settings": record("Settings of routers and engines alike.", {
                key: value for key, value in clean(config["router"])["properties"].items()
                if key.startswith("trace_") and key not in OWN["router"]}),
        }),
        "test": record("`helm test`.", {
            "service": text("Empty: the first."), "maxTokens": number("Tokens of the response.", 1)}),
        "extraObjects": listing("Objects of your own.", {"type": ["object", "string"]}),
    })


def main():
    arguments = sys.argv[1:]
    if arguments not in ([], ["--check"]):
        print(__doc__.strip())
        return 0 if arguments in (["-h"], ["--help"]) else 2
    try:
        config = json.load(sys.stdin)["properties"]
    except (ValueError, KeyError) as problem:
        print(f"schema.py: standard input is not what `muster config schema` prints: {problem}", file=sys.stderr)
        return 2
    schema = {"$schema": "http://json-schema.org/draft-07/schema#", "title": "muster", "definitions": {
        "agent": settings(config["agent"], "agent", "Settings of the agent."),
        "image": image("An image."),
    }, **chart(config)}
    made = json.dumps(schema, indent=1) + "\n"
    if not arguments:
        with open(OUT, "w", encoding="utf-8") as file:
            file.write(made)
        return 0
    with open(OUT, encoding="utf-8") as file:
        if file.read() == made:
            return 0
    print("helm/muster/values.schema.json is not made from this program's settings;\n"
          "run: build/muster config schema | helm/schema.py")
    return 1


sys.exit(main())
