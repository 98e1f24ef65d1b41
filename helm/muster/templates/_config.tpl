{{/* _config.tpl - makes muster.yaml of controller and router from the values. */}}

{{/* (dict "service" S "pool" P "accelerator" A): the offer that a pool buys of an accelerator. Its Pods differ
from those of other pools, and so does its time to readiness: each has a name of its own. Without a service it is
that of services as objects, which share one for each accelerator. */}}
{{- define "muster.offer" -}}
{{- if .service -}}
{{- printf "%s/%s/%s" .service .pool .accelerator -}}
{{- else -}}
{{- .accelerator -}}
{{- end -}}
{{- end -}}

{{/* The key of an offer's Pod template in the ConfigMap; keys have neither slashes nor blanks. */}}
{{- define "muster.template" -}}
{{- printf "pod-%s.yaml" (regexReplaceAll "[^-._a-zA-Z0-9]" (include "muster.offer" . | replace "/" "_") "-") -}}
{{- end -}}

{{/* Keys of a service, pool or accelerator that are the chart's and no settings. */}}
{{- define "muster.serviceConfig" -}}
{{- $service := .service -}}
{{- $config := omit $service "model" "pools" "podDisruptionBudget" -}}
{{- $_ := set $config "model" $service.model.path -}}
{{- $pools := list -}}
{{- range $pool := $service.pools -}}
{{- $one := omit $pool "accelerators" "env" "initContainers" "extraVolumes" "extraVolumeMounts" "image" "agent" -}}
{{- $offers := list -}}
{{- range $name := $pool.accelerators -}}
{{- $offers = append $offers (include "muster.offer" (dict "service" $service.name "pool" $pool.name "accelerator" $name)) -}}
{{- end -}}
{{- $pools = append $pools (mergeOverwrite $one (dict "provider" "kubernetes" "offers" $offers)) -}}
{{- end -}}
{{- toYaml (mergeOverwrite $config (dict "pools" $pools)) -}}
{{- end -}}

{{/* Returns "yes" if the driver writes the Pod's resources; else the template has them. */}}
{{- define "muster.plainResources" -}}
{{- if not (or .requests .claims) -}}yes{{- end -}}
{{- end -}}

{{/* (dict "root" $ "service" .. "pool" .. "name" ACCELERATOR): one of kubernetes.offers. */}}
{{- define "muster.offerConfig" -}}
{{- $accelerator := index .root.Values.accelerators .name -}}
{{- $offer := omit $accelerator "resources" "requests" "nodeLabels" "tolerations" "affinity" "claims" "runtimeClassName" "image" "agent" "shmSize" "env" -}}
{{- $where := dict "service" .service.name "pool" .pool.name "accelerator" .name -}}
{{- $_ := set $offer "name" (include "muster.offer" $where) -}}
{{- if not $accelerator.workload -}}
{{- $_ := set $offer "pod" (printf "/etc/muster/%s" (include "muster.template" $where)) -}}
{{- end -}}
{{- if and (include "muster.plainResources" $accelerator) (not $accelerator.workload) -}}
{{- $resources := list -}}
{{- range $name := keys (default (dict) $accelerator.resources) | sortAlpha -}}
{{- $resources = append $resources (printf "%s=%v" $name (index $accelerator.resources $name)) -}}
{{- end -}}
{{- $_ := set $offer "resources" $resources -}}
{{- end -}}
{{- with $accelerator.nodeLabels -}}
{{- $labels := list -}}
{{- range $name := keys . | sortAlpha -}}
{{- $labels = append $labels (printf "%s=%v" $name (index $accelerator.nodeLabels $name)) -}}
{{- end -}}
{{- $_ := set $offer "node_labels" $labels -}}
{{- end -}}
{{- toYaml $offer -}}
{{- end -}}

{{/* The service and pool that stand for those of objects, which are not known here. */}}
{{- define "muster.objectService" -}}
{{- toYaml (dict "service" (dict "name" "" "model" .Values.serviceObjects.models) "pool" (dict "name" "")) -}}
{{- end -}}

{{/* The fleet's name in a Redis that others use too. */}}
{{- define "muster.storeFleet" -}}
{{- printf "%s-%s" .Release.Namespace (include "muster.fullname" .) -}}
{{- end -}}

{{/* "yes" where the store is one that several controllers may share. */}}
{{- define "muster.sharedStore" -}}
{{- if or .Values.controller.store.kubernetes .Values.controller.store.url -}}yes{{- end -}}
{{- end -}}

{{/* Names of the objects that a store on Kubernetes consists of, by kind; as base/io/store/store_kube.c has them. */}}
{{- define "muster.storeObjects" -}}
{{- $name := printf "%s-store" (include "muster.fullname" .) -}}
{{- $maps := list -}}
{{- range $i := until 32 -}}{{- $maps = append $maps (printf "%s-r%d" $name $i) -}}{{- end -}}
{{- range $i := until 12 -}}{{- $maps = append $maps (printf "%s-l%d" $name $i) -}}{{- end -}}
{{- $secrets := list -}}
{{- range $i := until 4 -}}{{- $secrets = append $secrets (printf "%s-s%d" $name $i) -}}{{- end -}}
{{- toYaml (dict "leases" (list $name) "configmaps" $maps "secrets" $secrets) -}}
{{- end -}}

{{/* HOST:PORT of every controller's Pod, one a line; nothing where there is one controller. */}}
{{- define "muster.controllers" -}}
{{- $name := printf "%s-controller" (include "muster.fullname" .) -}}
{{- if gt (int .Values.controller.replicas) 1 -}}
{{- range $i := until (int .Values.controller.replicas) -}}
{{- if $i }}{{ "\n" }}{{ end -}}
{{- $.Values.tls.enabled | ternary "https://" "" -}}
{{- printf "%s-%d.%ss.%s.svc:8090" $name $i $name $.Release.Namespace -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "muster.controllerConfig" -}}
{{- $v := .Values -}}
{{- $controller := mergeOverwrite (deepCopy (omit $v.controller.settings "hosts")) (dict
      "listen" (printf "%s:8090" $v.listenAddress)
      "state" "/var/lib/muster/state"
      "secret_file" "/run/muster/muster-state/secret"
      "agents_reach" (include "muster.controllerAt" .)) -}}
{{- if $v.tls.enabled -}}
{{- $controller = mergeOverwrite $controller (dict
      "tls_certificate" "/etc/muster-tls/tls.crt" "tls_key" "/etc/muster-tls/tls.key"
      "tls_ca" "/etc/muster-ca/ca.crt") -}}
{{- end -}}
{{- with $v.controller.store.url -}}
{{- $controller = mergeOverwrite $controller (dict "store" . "store_fleet" (include "muster.storeFleet" $)) -}}
{{- if $v.controller.store.passwordSecret.name -}}
{{- $_ := set $controller "store_password_file" "/run/muster-store/password" -}}
{{- end -}}
{{- if $v.controller.store.tlsSecret.name -}}
{{- $_ := set $controller "store_ca" "/etc/muster-store-tls/ca.crt" -}}
{{- if $v.controller.store.tlsSecret.clientCertificate -}}
{{- $_ := set $controller "store_certificate" "/etc/muster-store-tls/tls.crt" -}}
{{- $_ := set $controller "store_key" "/etc/muster-store-tls/tls.key" -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if $v.controller.store.kubernetes -}}
{{- $own := dict "store" (printf "kubernetes://%s/%s" .Release.Namespace (include "muster.fullname" .)) -}}
{{- /* An API server that is busy takes longer than a Redis. */ -}}
{{- $controller = mergeOverwrite (dict "store_timeout" "2s" "leader_lease" "15s") $controller $own -}}
{{- end -}}
{{- with include "muster.controllers" . -}}
{{- $_ := set $controller "controllers" (splitList "\n" .) -}}
{{- end -}}
{{- $kubernetes := mergeOverwrite (deepCopy $v.instances.settings) (dict
      "namespace" .Release.Namespace
      "fleet" (include "muster.fullname" .)
      "owner" (printf "statefulsets/%s-controller" (include "muster.fullname" .))
      "image" (include "muster.image" (dict "root" .))) -}}
{{- with $v.instances.priorityClassName -}}
{{- $_ := set $kubernetes "priority_class" . -}}
{{- end -}}
{{- $offers := list -}}
{{- $services := list -}}
{{- range $service := $v.services -}}
{{- $services = append $services (include "muster.serviceConfig" (dict "service" $service) | fromYaml) -}}
{{- range $pool := $service.pools -}}
{{- range $name := $pool.accelerators -}}
{{- $offers = append $offers (include "muster.offerConfig" (dict "root" $ "service" $service "pool" $pool "name" $name) | fromYaml) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if $v.serviceObjects.enabled -}}
{{- $_ := set $kubernetes "services" true -}}
{{- $object := include "muster.objectService" . | fromYaml -}}
{{- range $name := keys $v.accelerators | sortAlpha -}}
{{- $offers = append $offers (include "muster.offerConfig" (dict "root" $ "service" $object.service "pool" $object.pool "name" $name) | fromYaml) -}}
{{- end -}}
{{- end -}}
{{- $_ := set $kubernetes "offers" $offers -}}
{{- $engine := deepCopy $v.engine.settings -}}
{{- with include "muster.tracing" . -}}
{{- $engine = mergeOverwrite (fromYaml .) $engine -}}
{{- end -}}
{{- if include "muster.monitored" . -}}
{{- $_ := set $controller "metrics_key_file" "/run/muster-metrics/token" -}}
{{- $_ := set $engine "metrics_key_file" "/run/muster-metrics/token" -}}
{{- end -}}
{{- toYaml (dict "controller" $controller "kubernetes" $kubernetes "services" $services) }}
{{- if $engine }}
{{ toYaml (dict "engine" $engine) }}
{{- end }}
{{- end -}}

{{/* The ConfigMap's data: muster.yaml, and a Pod template an offer. */}}
{{- define "muster.controllerData" -}}
{{- include "muster.check" . -}}
muster.yaml: |
  {{- include "muster.controllerConfig" . | nindent 2 }}
{{- range $service := .Values.services }}
{{- range $pool := $service.pools }}
{{- range $name := $pool.accelerators }}
{{ include "muster.template" (dict "service" $service.name "pool" $pool.name "accelerator" $name) }}: |
  {{- include "muster.podTemplate" (dict "root" $ "service" $service "pool" $pool "name" $name) | nindent 2 }}
{{- end }}
{{- end }}
{{- end }}
{{- if .Values.serviceObjects.enabled }}
{{- $object := include "muster.objectService" . | fromYaml }}
{{- range $name := keys .Values.accelerators | sortAlpha }}
{{ include "muster.template" (dict "service" "" "pool" "" "accelerator" $name) }}: |
  {{- include "muster.podTemplate" (dict "root" $ "service" $object.service "pool" $object.pool "name" $name) | nindent 2 }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "muster.routerConfig" -}}
{{- $v := .Values -}}
{{- $router := mergeOverwrite (deepCopy (omit $v.router.settings "hosts")) (dict
      "listen" (printf "%s:8080" $v.listenAddress)
      "controller" (include "muster.controllerAt" .)
      "secret_file" "/run/muster/muster-state/secret"
      "keys_file" "/var/lib/muster/router.keys"
      "predict_file" "/var/lib/muster/predicted") -}}
{{- if $v.tls.enabled -}}
{{- $router = mergeOverwrite $router (dict
      "tls_certificate" "/etc/muster-tls/tls.crt" "tls_key" "/etc/muster-tls/tls.key"
      "tls_ca" "/etc/muster-ca/ca.crt") -}}
{{- end -}}
{{- if include "muster.monitored" . -}}
{{- $_ := set $router "metrics_key_file" "/run/muster-metrics/token" -}}
{{- end -}}
{{- with include "muster.tracing" . -}}
{{- $router = mergeOverwrite (fromYaml .) $router -}}
{{- end -}}
{{- with include "muster.controllers" . -}}
{{- $_ := set $router "controllers" (splitList "\n" .) -}}
{{- $_ := unset $router "controller" -}}
{{- end -}}
{{- toYaml (dict "router" $router) -}}
{{- end -}}
