"""chart_policy.py - checks rendered objects of the chart against rules that no schema holds: Pod Security, images,
rights, selectors, references, and who may talk to whom.

Every check returns sentences, one a fault. Objects are dicts as Kubernetes has them.
"""
import re

NAME = "app.kubernetes.io/name"
INSTANCE = "app.kubernetes.io/instance"
COMPONENT = "app.kubernetes.io/component"
RESTRICTED_VOLUMES = {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected",
                      "secret", "image"}
MOVING_TAGS = {"latest", "main", "master", "nightly", "edge", "dev"}
PARTS = ("controller", "router", "instance", "test")


def called(thing):
    return f"{thing['kind']} {thing['metadata'].get('name', '?')}"


def pod_of(thing):
    """(labels, annotations, spec) of the Pods that an object makes; None for others."""
    if thing["kind"] == "Pod":
        return thing["metadata"].get("labels", {}), thing["metadata"].get("annotations", {}), thing["spec"]
    if thing["kind"] in ("Deployment", "StatefulSet", "DaemonSet", "Job"):
        template = thing["spec"]["template"]
        return template["metadata"]["labels"], template["metadata"].get("annotations", {}), template["spec"]
    return None


def containers(spec):
    return spec.get("initContainers", []) + spec["containers"]


# ---- Pods ----


def pod_security(spec):
    """What Pod Security "restricted" wants, and a read-only root besides."""
    bad = []
    context = spec.get("securityContext", {})
    if context.get("runAsNonRoot") is not True:
        bad.append("may run as root")
    if context.get("seccompProfile", {}).get("type") != "RuntimeDefault":
        bad.append("has no seccomp profile")
    for name in ("hostNetwork", "hostPID", "hostIPC"):
        if spec.get(name):
            bad.append(f"sets {name}")
    for volume in spec.get("volumes", []):
        for kind in set(volume) - {"name"} - RESTRICTED_VOLUMES:
            bad.append(f"has a volume of the kind {kind}")
    for one in containers(spec):
        own = one.get("securityContext", {})
        name = one["name"]
        if own.get("allowPrivilegeEscalation") is not False or own.get("privileged"):
            bad.append(f"{name} may gain privileges")
        if own.get("capabilities", {}).get("drop") != ["ALL"] or own.get("capabilities", {}).get("add"):
            bad.append(f"{name} keeps capabilities")
        if own.get("readOnlyRootFilesystem") is not True:
            bad.append(f"{name} may write to its image")
        if any("hostPort" in port for port in one.get("ports", [])):
            bad.append(f"{name} takes a port of the node")
    return bad


def image_is_fixed(image):
    if "@sha256:" in image:
        return True
    name, colon, tag = image.rpartition(":")
    return bool(colon) and "/" not in tag and bool(name) and tag not in MOVING_TAGS


def pod_habits(spec, part):
    """Resources, images, probes, tokens and service links."""
    bad = []
    for one in containers(spec):
        name = one["name"]
        resources = one.get("resources", {})
        if not {"cpu", "memory"} <= set(resources.get("requests", {})):
            bad.append(f"{name} requests no cpu or no memory")
        if not image_is_fixed(one["image"]):
            bad.append(f"{name} runs {one['image']}, which moves")
    if spec.get("enableServiceLinks") is not False:
        bad.append("gets service links, which look like settings")
    may_ask = part == "controller"
    if spec.get("automountServiceAccountToken") is not may_ask:
        bad.append("has a token without need" if not may_ask else "lacks its token")
    if part in ("controller", "router"):
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            if probe not in spec["containers"][0]:
                bad.append(f"has no {probe}")
        alive = spec["containers"][0].get("livenessProbe", {})
        if "httpGet" in alive and alive["httpGet"]["path"] != "/health":
            bad.append("dies while it is not ready")
    return bad


def pods(things):
    for thing in things:
        pod = pod_of(thing)
        if pod is None:
            continue
        for fault in pod_habits(pod[2], pod[0].get(COMPONENT)) + pod_security(pod[2]):
            yield f"{called(thing)} {fault}"


def template_volumes(templates):
    """Volumes of instances that "restricted" forbids; what else it wants the driver adds to the templates."""
    for template in templates:
        for volume in template["spec"].get("volumes", []):
            for kind in set(volume) - {"name"} - RESTRICTED_VOLUMES:
                yield f"instances have a volume of the kind {kind}"


# ---- objects among each other ----


def labels(things, release, common):
    for thing in things:
        if thing["metadata"].get("labels", {}).get("helm.sh/chart") is None:
            continue  # an object of the user's
        have = thing["metadata"]["labels"]
        for name, value in {NAME: "muster", INSTANCE: release, **common}.items():
            if have.get(name) != value:
                yield f"{called(thing)} has {name}={have.get(name)}, not {value}"
        if "namespace" not in thing["metadata"] and not thing["kind"].startswith("Cluster"):
            yield f"{called(thing)} names no namespace"


def matches(selector, have):
    for expression in selector.get("matchExpressions", []):
        raise ValueError(f"this checker does not know {expression}")
    return all(have.get(name) == value for name, value in selector.get("matchLabels", {}).items())


def selectors(things, templates):
    """Whatever selects Pods finds some; ports that it names exist there; other releases' Pods are left alone."""
    made = [(pod[0], pod[2]) for pod in map(pod_of, things) if pod]
    made += [(instance_labels(t), t["spec"]) for t in templates]
    for thing in things:
        kind, spec = thing["kind"], thing.get("spec", {})
        if kind == "Service":
            selector, ports = {"matchLabels": spec["selector"]}, [p["targetPort"] for p in spec["ports"]]
        elif kind in ("PodDisruptionBudget", "Deployment", "StatefulSet"):
            selector, ports = spec["selector"], []
        elif kind == "NetworkPolicy":
            selector, ports = spec["podSelector"], []
        elif kind == "PodMonitor":
            selector, ports = spec["selector"], [e["port"] for e in spec["podMetricsEndpoints"]]
        elif kind == "ServiceMonitor":
            selector, ports = spec["selector"], []
            found = [s for s in things if s["kind"] == "Service" and matches(selector, s["metadata"]["labels"])]
            for end in spec["endpoints"]:
                if not any(end["port"] == p["name"] for s in found for p in s["spec"]["ports"]):
                    yield f"{called(thing)} finds no Service with a port {end['port']}"
            continue
        else:
            continue
        if INSTANCE not in selector.get("matchLabels", {}) or NAME not in selector["matchLabels"]:
            yield f"{called(thing)} selects Pods of other releases too"
        found = [pod for pod in made if matches(selector, pod[0])]
        if not found and not (kind == "NetworkPolicy" and not templates):
            yield f"{called(thing)} selects no Pod"
        for port in ports:
            names = {p.get("name") for _, s in found for c in s["containers"] for p in c.get("ports", [])}
            if found and port not in names:
                yield f"{called(thing)} names the port {port}, which its Pods lack"


def instance_labels(template):
    """Labels that the driver adds to an instance's Pod come after the template's."""
    return {**template["metadata"]["labels"], NAME: "muster", COMPONENT: "instance"}


def references(things, templates, given):
    """Secrets, ConfigMaps, claims and accounts that Pods name are rendered or given by the values."""
    have = {(t["kind"], t["metadata"]["name"]) for t in things} | given
    for thing in things:
        if thing["kind"] == "Certificate":
            have.add(("Secret", thing["spec"]["secretName"]))
    specs = [(called(t), pod_of(t)[2]) for t in things if pod_of(t)]
    specs += [("a Pod template", t["spec"]) for t in templates]
    for who, spec in specs:
        named = set()
        for volume in spec.get("volumes", []):
            named |= {("Secret", volume["secret"]["secretName"])} if "secret" in volume else set()
            named |= {("ConfigMap", volume["configMap"]["name"])} if "configMap" in volume else set()
            if "persistentVolumeClaim" in volume:
                named.add(("PersistentVolumeClaim", volume["persistentVolumeClaim"]["claimName"]))
        for one in containers(spec):
            for variable in one.get("env", []):
                source = variable.get("valueFrom", {}).get("secretKeyRef")
                named |= {("Secret", source["name"])} if source else set()
            mounted = {m["name"] for m in one.get("volumeMounts", [])}
            for name in mounted - {v["name"] for v in spec.get("volumes", [])}:
                yield f"{who}: {one['name']} mounts {name}, which is no volume"
        if spec.get("serviceAccountName", "default") != "default":
            named.add(("ServiceAccount", spec["serviceAccountName"]))
        for kind, name in sorted(named - have):
            yield f"{who} names the {kind} {name}, which nobody makes"


def unique(things):
    seen = set()
    for thing in things:
        key = (thing["apiVersion"].split("/")[0], thing["kind"], thing["metadata"]["name"])
        if key in seen:
            yield f"there are two: {called(thing)}"
        seen.add(key)


# ---- rights ----


def rights(things):
    """{(verb, resource)} that the controller's account has; faults where a rule says more than these."""
    have, bad = set(), []
    for thing in things:
        if thing["kind"] not in ("Role", "ClusterRole"):
            continue
        for rule in thing["rules"]:
            if "*" in rule["verbs"] + rule["resources"] + rule["apiGroups"] or "nonResourceURLs" in rule:
                bad.append(f"{called(thing)} has a rule for everything")
            for resource in rule["resources"]:
                if resource == "statefulsets" and not rule.get("resourceNames"):
                    bad.append(f"{called(thing)} opens every StatefulSet")
                if resource in ("configmaps", "leases", "secrets") and set(rule["verbs"]) != {"create"} and \
                        not rule.get("resourceNames"):
                    bad.append(f"{called(thing)} opens all {resource}")
                have |= {(verb, resource) for verb in rule["verbs"]}
    for thing in things:
        if thing["kind"] in ("RoleBinding", "ClusterRoleBinding"):
            role = (thing["roleRef"]["kind"], thing["roleRef"]["name"])
            if role not in {(t["kind"], t["metadata"]["name"]) for t in things}:
                bad.append(f"{called(thing)} binds {role[1]}, which nobody makes")
            if len(thing["subjects"]) != 1 or thing["subjects"][0]["kind"] != "ServiceAccount":
                bad.append(f"{called(thing)} binds more than the controller's account")
    return have, bad


# ---- network ----


def peer_name(peer):
    """The name of a peer in the document's table; None for one that a user added."""
    if "podSelector" in peer and "namespaceSelector" not in peer:
        return peer["podSelector"]["matchLabels"][COMPONENT]
    names = peer.get("namespaceSelector", {}).get("matchLabels", {})
    return {"monitoring": "monitoring", "kube-system": "names"}.get(names.get("kubernetes.io/metadata.name"))


def port_text(port):
    return f"{port['port']}-{port['endPort']}" if "endPort" in port else str(port["port"])


def network(things):
    """({(from, to, port)} that the policies allow, faults). Between two parts both sides must allow it."""
    policies = {t["spec"]["podSelector"]["matchLabels"][COMPONENT]: t["spec"] for t in things
                if t["kind"] == "NetworkPolicy"}
    bad = [f"{part} has no NetworkPolicy" for part in PARTS if part not in policies]
    into, out = set(), set()
    for part, spec in policies.items():
        if sorted(spec.get("policyTypes", [])) != ["Egress", "Ingress"]:
            bad.append(f"the NetworkPolicy of {part} leaves a direction open")
        for rule in spec.get("ingress", []):
            ports = [port_text(p) for p in rule.get("ports", [])] or ["any"]
            froms = [peer_name(p) for p in rule["from"]] if "from" in rule else ["anybody"]
            into |= {(f, part, p) for f in froms for p in ports}
        for rule in spec.get("egress", []):
            ports = [port_text(p) for p in rule.get("ports", [])] or ["any"]
            tos = [peer_name(p) for p in rule["to"]] if "to" in rule else ["anywhere"]
            out |= {(part, t, p) for t in tos for p in ports}
    allowed = {pair for pair in into | out if (pair[0] not in policies or pair in out)
               and (pair[1] not in policies or pair in into or ("anybody", *pair[1:]) in into)}
    bad += [f"{f} may send to {t} at {p}, which does not let it in" for f, t, p in sorted(out - allowed)]
    bad += [f"{t} lets {f} in at {p}, which may not send there" for f, t, p in sorted(into - allowed)]
    return allowed, bad


# ---- the document's tables ----


def table(text, heading):
    """The rows of the first table below a heading, without its head; cells are texts."""
    rows, inside = [], False
    for line in text.splitlines():
        if line.startswith("#"):
            inside = line.lstrip("# ").strip() == heading
        elif inside and line.startswith("|"):
            rows.append([cell.strip().strip("`") for cell in line.strip().strip("|").split("|")])
        elif inside and rows:
            break
    return rows[2:]


def documented_network(text):
    pairs = set()
    for source, target, ports, *_ in table(text, "Who talks to whom"):
        sources = PARTS if source == "every part" else [source]
        pairs |= {(s, target, p) for s in sources for p in re.split(r",\s*", ports)}
    return pairs


def documented_rights(text, values=()):
    """The table's rights: those that need no value of the chart, and those "with" one of these values."""
    return {(verb, resource) for verbs, resource, why in table(text, "Rights") for verb in re.split(r",\s*", verbs)
            if not why.startswith("with ") or any(f"`{value}" in why.split(":")[0] for value in values)}
