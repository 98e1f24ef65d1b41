#!/usr/bin/env python3
"""Prints N fake GPU nodes as a list of Kubernetes objects, for kwok to bring to life.

    gpu-nodes.py N [--taint] [--first INDEX]      --taint: only pods that tolerate kwok.x-k8s.io/node run there
    gpu-nodes.py --labels GPUS                    prints the labels alone of one machine with so many GPUs, as JSON
    gpu-nodes.py --instance-types                 prints the machines that Karpenter may add, with prices

Labels are those of NVIDIA's GPU feature discovery (product, memory in MiB, family, compute capability), of its
device plug-in, of cloud providers (zone, instance type) and of Karpenter (capacity type). Products take turns, so
that every fleet of six or more has all; each third node is spot.
"""
import argparse
import json
import sys

GPUS_PER_NODE = 8

# Product as the driver calls it, memory in MiB, family, compute capability; the machine's name, cores and memory,
# and what it costs an hour, about as one cloud lists it. A spot machine costs SPOT_SHARE of that.
PRODUCTS = (
    ("NVIDIA-H100-80GB-HBM3", 81559, "hopper", "9.0", "p5.48xlarge", 192, "2048Gi", 55.04),
    ("NVIDIA-A100-SXM4-80GB", 81920, "ampere", "8.0", "p4de.24xlarge", 96, "1152Gi", 27.45),
    ("NVIDIA-L40S", 46068, "ada-lovelace", "8.9", "g6e.48xlarge", 192, "1536Gi", 30.13),
    ("NVIDIA-L4", 23034, "ada-lovelace", "8.9", "g6.48xlarge", 192, "768Gi", 13.35),
    ("NVIDIA-A10G", 23028, "ampere", "8.6", "g5.48xlarge", 192, "768Gi", 16.29),
    ("NVIDIA-H200", 143771, "hopper", "9.0", "p5en.48xlarge", 192, "2048Gi", 63.30),
)
SPOT_SHARE = 0.4
ZONES = ("test-1a", "test-1b", "test-1c")


def gpu_labels(product, gpus):
    """Returns what GPU feature discovery writes onto a node with so many GPUs of a product."""
    name, memory, family, capability, cloud = product[:5]
    major, minor = capability.split(".")
    return {
        "nvidia.com/gpu.present": "true",
        "nvidia.com/gpu.deploy.device-plugin": "true",
        "nvidia.com/gpu.product": name,
        "nvidia.com/gpu.memory": str(memory),
        "nvidia.com/gpu.count": str(gpus),
        "nvidia.com/gpu.replicas": "1",
        "nvidia.com/gpu.family": family,
        "nvidia.com/gpu.compute.major": major,
        "nvidia.com/gpu.compute.minor": minor,
        "nvidia.com/gpu.machine": cloud,
        "nvidia.com/gpu.sharing-strategy": "none",
        "nvidia.com/mig.capable": "true" if name.startswith(("NVIDIA-H", "NVIDIA-A100")) else "false",
        "nvidia.com/mig.strategy": "single",
        "nvidia.com/cuda.driver-version.full": "570.86.15",
        "nvidia.com/cuda.driver-version.major": "570",
        "nvidia.com/cuda.runtime-version.full": "12.8",
    }


def capacity(product):
    """Returns what a machine with eight GPUs of a product can hold."""
    return {
        "cpu": str(product[5]),
        "memory": product[6],
        "ephemeral-storage": "1Ti",
        "pods": "110",
        "nvidia.com/gpu": str(GPUS_PER_NODE),
    }


def instance_type(product):
    """Returns a machine as Karpenter's kwok provider reads it: an offering for each zone, on demand and spot."""
    labels = gpu_labels(product, GPUS_PER_NODE)
    offerings = []
    for zone in ZONES:
        for kind, share in (("on-demand", 1.0), ("spot", SPOT_SHARE)):
            wanted = {"karpenter.sh/capacity-type": kind, "topology.kubernetes.io/zone": zone}
            # Pods choose by these, so Karpenter must know them before there is a node.
            wanted.update({key: labels[key] for key in ("nvidia.com/gpu.product", "nvidia.com/gpu.memory")})
            requirements = [{"key": key, "operator": "In", "values": [value]} for key, value in wanted.items()]
            offerings.append({"Price": round(product[7] * share, 2), "Available": True, "Requirements": requirements})
    return {
        "name": product[4],
        "architecture": "amd64",
        "operatingSystems": ["linux"],
        "resources": capacity(product),
        "offerings": offerings,
    }


def node(index, taint):
    """Returns the object of one node. kwok makes it Ready and keeps its lease."""
    product = PRODUCTS[index % len(PRODUCTS)]
    name = f"gpu-{index:04}"
    labels = gpu_labels(product, GPUS_PER_NODE)
    labels.update(
        {
            "kubernetes.io/arch": "amd64",
            "kubernetes.io/os": "linux",
            "kubernetes.io/hostname": name,
            "node.kubernetes.io/instance-type": product[4],
            "topology.kubernetes.io/region": "test-1",
            "topology.kubernetes.io/zone": ZONES[index // len(PRODUCTS) % len(ZONES)],
            "karpenter.sh/capacity-type": "spot" if index % 3 == 2 else "on-demand",
            "type": "kwok",
        }
    )
    resources = capacity(product)
    spec = {}
    if taint:
        spec["taints"] = [{"key": "kwok.x-k8s.io/node", "value": "fake", "effect": "NoSchedule"}]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels, "annotations": {"kwok.x-k8s.io/node": "fake"}},
        "spec": spec,
        "status": {"capacity": resources, "allocatable": resources},
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("count", type=int, nargs="?", default=0, metavar="N")
    parser.add_argument("--taint", action="store_true")
    parser.add_argument("--first", type=int, default=0, metavar="INDEX")
    parser.add_argument("--labels", type=int, metavar="GPUS")
    parser.add_argument("--instance-types", action="store_true")
    args = parser.parse_args()
    if args.labels is not None:
        json.dump(gpu_labels(PRODUCTS[0], args.labels), sys.stdout)
        return
    if args.instance_types:
        json.dump([instance_type(product) for product in PRODUCTS], sys.stdout)
        return
    nodes = [node(i, args.taint) for i in range(args.first, args.first + args.count)]
    json.dump({"apiVersion": "v1", "kind": "List", "items": nodes}, sys.stdout)


main()
