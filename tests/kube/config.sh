# config.sh - writes a cluster's certificates, tokens, kubeconfigs and configuration files; sourced by `up`.
#
# One authority signs servers and clients; another one signs for the API server's proxy to aggregated APIs, as
# Kubernetes wants it. Keys are P-256, which costs milliseconds; they live and die with the cluster.
#
# shellcheck disable=SC2154

# authority NAME: makes pki/NAME.crt and its key.
authority() {
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 -subj "/CN=$1" \
        -addext keyUsage=critical,keyCertSign,cRLSign -keyout "$pki/$1.key" -out "$pki/$1.crt" 2>/dev/null
}

# certificate NAME AUTHORITY SUBJECT ALTERNATIVE-NAMES: makes pki/NAME.crt and its key.
certificate() {
    openssl req -x509 -CA "$pki/$2.crt" -CAkey "$pki/$2.key" -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes \
        -days 30 -subj "$3" -addext basicConstraints=critical,CA:FALSE -addext "subjectAltName=$4" \
        -addext extendedKeyUsage=serverAuth,clientAuth -keyout "$pki/$1.key" -out "$pki/$1.crt" 2>/dev/null
}

# kubeconfig FILE USER-LINE: one that stands alone, with the authority in it.
kubeconfig() {
    (umask 077 && cat >"$1") <<YAML
apiVersion: v1
kind: Config
clusters:
  - name: test
    cluster: { server: "https://$api", certificate-authority-data: $(base64 -w0 "$pki/ca.crt") }
users:
  - name: test
    user: { $2 }
contexts:
  - name: test
    context: { cluster: test, user: test }
current-context: test
YAML
}

# client NAME SUBJECT: a client certificate and the kubeconfig etc/NAME.kubeconfig with it.
client() {
    certificate "$1" ca "$2" "DNS:$1"
    kubeconfig "$etc/$1.kubeconfig" \
        "client-certificate-data: $(base64 -w0 "$pki/$1.crt"), client-key-data: $(base64 -w0 "$pki/$1.key")"
}

# write_pki: all keys and kubeconfigs. Components are the users that the default roles are bound to.
write_pki() {
    mkdir -p "$pki" "$etc"
    chmod 700 "$pki"
    authority ca
    authority front-proxy-ca
    certificate apiserver ca /CN=kube-apiserver "DNS:localhost,DNS:kubernetes,DNS:kubernetes.default,\
DNS:kubernetes.default.svc,DNS:kubernetes.default.svc.cluster.local,IP:127.0.0.1,IP:${api%:*},IP:$service_net.1"
    certificate front-proxy front-proxy-ca /CN=front-proxy DNS:front-proxy
    certificate kubelet-client ca /O=system:masters/CN=kube-apiserver-kubelet-client DNS:kubelet-client
    client admin /O=system:masters/CN=admin
    client controller-manager /CN=system:kube-controller-manager
    client scheduler /CN=system:kube-scheduler
    client kwok /O=system:masters/CN=kwok
    client karpenter /O=system:masters/CN=karpenter
    if [ "$mode" = node ]; then
        certificate kubelet ca "/O=system:nodes/CN=system:node:$node_name" "DNS:$node_name,IP:$node_ip,IP:127.0.0.1"
        kubeconfig "$etc/kubelet.kubeconfig" "client-certificate: $pki/kubelet.crt, client-key: $pki/kubelet.key"
        client proxy /CN=system:kube-proxy
        client coredns /O=system:masters/CN=coredns
    fi
    openssl genrsa -out "$pki/service-account.key" 2048 2>/dev/null
    openssl rsa -in "$pki/service-account.key" -pubout -out "$pki/service-account.pub" 2>/dev/null

    local token
    token=$(openssl rand -hex 24)
    (umask 077 && echo "$token" >"$dir/state/token" && echo "$token,token-admin,token-admin,system:masters" >"$etc/tokens.csv")
    kubeconfig "$dir/state/kubeconfig-token" "token: $token"
    cp "$etc/admin.kubeconfig" "$dir/state/kubeconfig"
}

# write_api_config: what is written to the audit log, and the defaults of Pod Security admission.
write_api_config() {
    # Who asked for what, and the reply's code, of every request; no bodies, so the log grows by 1 KB a request.
    cat >"$etc/audit-policy.yaml" <<'YAML'
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
  - level: None
    nonResourceURLs: ["/readyz*", "/livez*", "/healthz*"]
  - level: Metadata
YAML
    # Namespaces choose by label. Those without one run anything, but the audit log tells what `restricted`
    # would have refused.
    cat >"$etc/pod-security.yaml" <<'YAML'
apiVersion: pod-security.admission.config.k8s.io/v1
kind: PodSecurityConfiguration
defaults:
  enforce: privileged
  enforce-version: latest
  audit: restricted
  audit-version: latest
  warn: privileged
  warn-version: latest
YAML
    cat >"$etc/admission.yaml" <<YAML
apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
  - name: PodSecurity
    path: $etc/pod-security.yaml
YAML
}

# write_node_config: configuration files of containerd, its network plug-ins, kubelet and CoreDNS.
write_node_config() {
    mkdir -p "$etc/cni" "$dir/data/containerd/tmp"
    # Without the right to lower oom_score_adj, as in many containers and small virtual machines, runc cannot
    # start a pod unless containerd keeps to what is allowed.
    cat >"$etc/containerd.toml" <<TOML
version = 2
root = "$dir/data/containerd/root"
state = "/run/containerd"
temp = "$dir/data/containerd/tmp"
[grpc]
  address = "/run/containerd/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "$pause_image"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "$etc/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      SystemdCgroup = false
TOML
    cat >"$etc/cni/10-pods.conflist" <<JSON
{
  "cniVersion": "1.0.0",
  "name": "pods",
  "plugins": [
    { "type": "bridge", "bridge": "cni0", "isGateway": true, "ipMasq": false, "hairpinMode": true,
      "ipam": { "type": "host-local", "ranges": [[{ "subnet": "$pod_cidr" }]], "dataDir": "/run/cni",
                "routes": [{ "dst": "0.0.0.0/0" }] } },
    { "type": "portmap", "capabilities": { "portMappings": true } }
  ]
}
JSON
    # Thresholds of a disk that is shared with the machine: 1 % free is enough for a test.
    cat >"$etc/kubelet.yaml" <<YAML
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication:
  anonymous: { enabled: false }
  webhook: { enabled: true }
  x509: { clientCAFile: $pki/ca.crt }
authorization: { mode: Webhook }
tlsCertFile: $pki/kubelet.crt
tlsPrivateKeyFile: $pki/kubelet.key
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
cgroupDriver: cgroupfs
failCgroupV1: false
failSwapOn: false
oomScoreAdj: 0
clusterDNS: [$service_net.10]
clusterDomain: cluster.local
resolvConf: ""
maxPods: 250
serializeImagePulls: false
evictionHard: { memory.available: 100Mi, nodefs.available: "1%", imagefs.available: "1%" }
imageGCHighThresholdPercent: 100
imageGCLowThresholdPercent: 99
YAML
    cat >"$etc/Corefile" <<CONF
.:53 {
    bind $node_ip
    errors
    ready $node_ip:8181
    kubernetes cluster.local in-addr.arpa {
        kubeconfig $etc/coredns.kubeconfig
        pods insecure
        ttl 5
    }
}
CONF
}
