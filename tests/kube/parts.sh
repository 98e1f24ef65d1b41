# parts.sh - the command line of each part of a cluster; sourced by `up`.
#
# A part's function starts it; `watched` then lists it, so that waiting ends when one of them dies.
#
# shellcheck disable=SC2154

start() { # PART PROGRAM ARGUMENT...
    start_part "$@"
    watched+=" $1"
}

part_etcd() {
    # A test's cluster need not survive a power cut: no fsync makes start and writes several times faster.
    start etcd etcd --name test --data-dir "$dir/data/etcd" --unsafe-no-fsync \
        --listen-client-urls "http://$etcd" --advertise-client-urls "http://$etcd" \
        --listen-peer-urls "http://$etcd_peer" --initial-advertise-peer-urls "http://$etcd_peer" \
        --initial-cluster "test=http://$etcd_peer"
}

part_apiserver() {
    local -a place=(--advertise-address="${api%:*}" --bind-address="${api%:*}")
    # The endpoints of the Service `kubernetes` must not be on loopback, so there it has none.
    if [ "$mode" = node ]; then
        place=(--advertise-address="$node_ip" --bind-address=0.0.0.0)
    else
        place+=(--endpoint-reconciler-type=none)
    fi
    start kube-apiserver "$bin/kube-apiserver" "${place[@]}" --secure-port="${api##*:}" \
        --etcd-servers="http://$etcd" --service-cluster-ip-range="$service_cidr" --allow-privileged=true \
        --tls-cert-file="$pki/apiserver.crt" --tls-private-key-file="$pki/apiserver.key" \
        --client-ca-file="$pki/ca.crt" --token-auth-file="$etc/tokens.csv" \
        --authorization-mode=Node,RBAC --enable-admission-plugins=NodeRestriction \
        --admission-control-config-file="$etc/admission.yaml" \
        --service-account-issuer=https://kubernetes.default.svc.cluster.local \
        --service-account-key-file="$pki/service-account.pub" \
        --service-account-signing-key-file="$pki/service-account.key" \
        --requestheader-client-ca-file="$pki/front-proxy-ca.crt" --requestheader-allowed-names=front-proxy \
        --requestheader-username-headers=X-Remote-User --requestheader-group-headers=X-Remote-Group \
        --requestheader-extra-headers-prefix=X-Remote-Extra- \
        --proxy-client-cert-file="$pki/front-proxy.crt" --proxy-client-key-file="$pki/front-proxy.key" \
        --kubelet-client-certificate="$pki/kubelet-client.crt" --kubelet-client-key="$pki/kubelet-client.key" \
        --kubelet-certificate-authority="$pki/ca.crt" --kubelet-preferred-address-types=InternalIP \
        --audit-policy-file="$etc/audit-policy.yaml" --audit-log-path="$dir/log/audit.log" \
        --audit-log-maxsize=200 --audit-log-maxbackup=2 "${api_arguments[@]}"
}

part_controller_manager() {
    start kube-controller-manager "$bin/kube-controller-manager" --kubeconfig="$etc/controller-manager.kubeconfig" \
        --leader-elect=false --secure-port=0 --use-service-account-credentials=true \
        --root-ca-file="$pki/ca.crt" --service-account-private-key-file="$pki/service-account.key" \
        --cluster-signing-cert-file="$pki/ca.crt" --cluster-signing-key-file="$pki/ca.key" \
        --service-cluster-ip-range="$service_cidr" --kube-api-qps=200 --kube-api-burst=400
}

part_scheduler() {
    start kube-scheduler "$bin/kube-scheduler" --kubeconfig="$etc/scheduler.kubeconfig" --leader-elect=false \
        --secure-port=0 --kube-api-qps=200 --kube-api-burst=400
}

# kwok leads the fake nodes and their pods through their lives; nobody calls the address that its nodes claim.
part_kwok() {
    start kwok "$bin/kwok" --kubeconfig="$etc/kwok.kubeconfig" --manage-all-nodes=false \
        --manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake \
        --cidr="$fake_pod_cidr" --node-ip=198.51.100.1 --node-port=0 --server-address= \
        --node-lease-duration-seconds=40 # without leases its nodes are taken for lost after 50 s
}

# Karpenter adds fake nodes for pods that wait, from the machines that gpu-nodes.py knows.
part_karpenter() {
    start karpenter env KUBECONFIG="$etc/karpenter.kubeconfig" SYSTEM_NAMESPACE=kube-system "$bin/karpenter-kwok" \
        --disable-leader-election --metrics-port=0 --health-probe-port=0 \
        --instance-types-file-path="$etc/instance-types.json"
}

part_containerd() {
    start containerd containerd --config "$etc/containerd.toml"
}

part_kubelet() {
    start kubelet "$bin/kubelet" --config="$etc/kubelet.yaml" --kubeconfig="$etc/kubelet.kubeconfig" \
        --hostname-override="$node_name" --node-ip="$node_ip"
}

part_proxy() {
    # Zero leaves the machine's connection tracking as it is.
    start kube-proxy "$bin/kube-proxy" --kubeconfig="$etc/proxy.kubeconfig" --hostname-override="$node_name" \
        --proxy-mode=iptables --cluster-cidr="$pod_cidr" --oom-score-adj=0 --conntrack-max-per-core=0 --conntrack-min=0 \
        --conntrack-tcp-timeout-established=0 --conntrack-tcp-timeout-close-wait=0
}

part_coredns() {
    start coredns "$bin/coredns" -conf "$etc/Corefile"
}
