{{/* _names.tpl - names, labels, images and security contexts that all objects share. */}}

{{/* 50 characters leave room for the longest suffix in the 63 of a label's value. */}}
{{- define "muster.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* (dict "root" $ "part" "router"): labels that select the Pods of a part; they never change. */}}
{{- define "muster.selector" -}}
app.kubernetes.io/name: muster
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .part }}
{{- end -}}

{{/* The same with what may change. */}}
{{- define "muster.labels" -}}
{{ include "muster.selector" . }}
app.kubernetes.io/part-of: muster
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- with .root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* (dict "root" $ "part" P "name" SUFFIX "annotations" MAP "labels" MAP): an object's metadata. `as` is the
whole name instead. */}}
{{- define "muster.metadata" -}}
name: {{ if .as }}{{ .as }}{{ else }}{{ include "muster.fullname" .root }}{{ with .name }}-{{ . }}{{ end }}{{ end }}
namespace: {{ .root.Release.Namespace }}
labels:
  {{- include "muster.labels" . | nindent 2 }}
  {{- with .labels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with merge (dict) (default (dict) .annotations) .root.Values.commonAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* (dict "root" $ "part" P): the name of the part's service account. */}}
{{- define "muster.account" -}}
{{- $account := (index .root.Values (eq .part "instance" | ternary "instances" .part)).serviceAccount -}}
{{- if $account.create -}}
{{- default (printf "%s-%s" (include "muster.fullname" .root) .part) $account.name -}}
{{- else -}}
{{- default "default" $account.name -}}
{{- end -}}
{{- end -}}

{{/* (dict "root" $ "image" MAP): the image's reference; fields that the map lacks are the chart's. */}}
{{- define "muster.image" -}}
{{- $own := default (dict) .image -}}
{{- $repository := default .root.Values.image.repository $own.repository -}}
{{- $inherits := not (or $own.repository $own.tag $own.digest) -}}
{{- $digest := $inherits | ternary .root.Values.image.digest $own.digest -}}
{{- $tag := $inherits | ternary .root.Values.image.tag $own.tag -}}
{{- if $digest -}}
{{- printf "%s@%s" $repository $digest -}}
{{- else -}}
{{- printf "%s:%s" $repository (default .root.Chart.AppVersion $tag) -}}
{{- end -}}
{{- end -}}

{{- define "muster.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
fsGroupChangePolicy: OnRootMismatch
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- define "muster.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{/* (dict "root" $ "part" P): fields of a Pod's spec that controller and router share. */}}
{{- define "muster.podSpec" -}}
{{- $part := index .root.Values .part -}}
serviceAccountName: {{ include "muster.account" . }}
enableServiceLinks: false
{{- with .root.Values.image.pullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  {{- include "muster.podSecurity" . | nindent 2 }}
{{- with $part.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with $part.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $part.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $part.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "muster.secretName" -}}
{{- default (printf "%s-fleet" (include "muster.fullname" .)) .Values.auth.existingSecret -}}
{{- end -}}

{{/* "yes" while something wants to read metrics. */}}
{{- define "muster.monitored" -}}
{{- $m := .Values.monitoring -}}
{{- if or $m.existingSecret $m.serviceMonitor.enabled $m.podMonitor.enabled .Values.router.keda.enabled -}}yes{{- end -}}
{{- end -}}

{{- define "muster.metricsSecretName" -}}
{{- default (printf "%s-metrics" (include "muster.fullname" .)) .Values.monitoring.existingSecret -}}
{{- end -}}

{{/* The settings of traces in a part's section, as YAML; nothing without an endpoint. */}}
{{- define "muster.tracing" -}}
{{- $t := .Values.tracing -}}
{{- if $t.endpoint -}}
{{- $settings := mergeOverwrite (deepCopy $t.settings) (dict "trace_endpoint" $t.endpoint) -}}
{{- if $t.headersSecret.name -}}
{{- $_ := set $settings "trace_headers_file" "/run/muster-tracing/headers" -}}
{{- end -}}
{{- toYaml $settings -}}
{{- end -}}
{{- end -}}

{{/* "yes" while a Secret with headers is mounted. */}}
{{- define "muster.tracingSecret" -}}
{{- if and .Values.tracing.endpoint .Values.tracing.headersSecret.name -}}yes{{- end -}}
{{- end -}}

{{/* Where a container runs, as OpenTelemetry names it, in its environment. */}}
{{- define "muster.tracingEnv" -}}
- name: K8S_POD_NAME
  valueFrom: { fieldRef: { fieldPath: metadata.name } }
- name: K8S_POD_UID
  valueFrom: { fieldRef: { fieldPath: metadata.uid } }
- name: K8S_NAMESPACE
  valueFrom: { fieldRef: { fieldPath: metadata.namespace } }
- name: K8S_NODE
  valueFrom: { fieldRef: { fieldPath: spec.nodeName } }
- name: OTEL_RESOURCE_ATTRIBUTES
  value: k8s.pod.name=$(K8S_POD_NAME),k8s.pod.uid=$(K8S_POD_UID),k8s.namespace.name=$(K8S_NAMESPACE),k8s.node.name=$(K8S_NODE)
{{- end -}}

{{- define "muster.controllerTlsSecret" -}}
{{- default (printf "%s-controller-tls" (include "muster.fullname" .)) .Values.tls.controllerSecret -}}
{{- end -}}

{{- define "muster.routerTlsSecret" -}}
{{- default (printf "%s-router-tls" (include "muster.fullname" .)) .Values.tls.routerSecret -}}
{{- end -}}

{{/* (dict "root" $ "part" P): the names that a part's Service has, one a line, shortest first. */}}
{{- define "muster.serviceNames" -}}
{{- $name := printf "%s-%s" (include "muster.fullname" .root) .part -}}
{{- $namespace := .root.Release.Namespace -}}
{{ $name }}
{{ $name }}.{{ $namespace }}
{{ $name }}.{{ $namespace }}.svc
{{- end -}}

{{/* HOST:PORT of the controller's Service, with https:// before it where it speaks TLS. */}}
{{- define "muster.controllerAt" -}}
{{- $name := printf "%s-controller.%s.svc" (include "muster.fullname" .) .Release.Namespace -}}
{{- printf "%s%s:%v" (.Values.tls.enabled | ternary "https://" "") $name .Values.controller.service.port -}}
{{- end -}}

{{/* The name of the controllers' headless Service; each controller's own name is below it. */}}
{{- define "muster.controllersName" -}}
{{- printf "%s-controllers.%s.svc" (include "muster.fullname" .) .Release.Namespace -}}
{{- end -}}

{{/* URL of the metrics that the controller which leads has; a controller that stands by redirects to it. */}}
{{- define "muster.leaderMetrics" -}}
{{- $scheme := ternary "https" "http" .Values.tls.enabled -}}
{{- if gt (int .Values.controller.replicas) 1 -}}
{{- printf "%s://%s:8090/metrics/leader" $scheme (include "muster.controllersName" .) -}}
{{- else -}}
{{- printf "%s://%s/metrics" $scheme (include "muster.controllerAt" . | trimPrefix "https://") -}}
{{- end -}}
{{- end -}}

{{/* (dict "hosts" LIST "names" TEXT): MUSTER_..._HOSTS: the Pod's address, its Service's names, further ones. */}}
{{- define "muster.hosts" -}}
{{- concat (list "$(POD_IP)") (splitList "\n" .names) (default (list) .hosts) | join "," -}}
{{- end -}}

{{/* (dict "what" SETTING "value" DURATION): a duration in whole seconds, rounded up. */}}
{{- define "muster.seconds" -}}
{{- $text := toString .value -}}
{{- if eq $text "0" -}}
0
{{- else -}}
{{- $unit := regexFind "[a-z]+$" $text -}}
{{- $factor := get (dict "us" 0.000001 "ms" 0.001 "s" 1.0 "m" 60.0 "h" 3600.0 "d" 86400.0) $unit -}}
{{- if not (and $factor (regexMatch "^[0-9]+([.][0-9]+)?[a-z]+$" $text)) -}}
{{- fail (printf "%s: '%s' is no duration; write 500ms, 30s, 10m or 1h" .what $text) -}}
{{- end -}}
{{- mulf (float64 (trimSuffix $unit $text)) $factor | ceil | int64 -}}
{{- end -}}
{{- end -}}
