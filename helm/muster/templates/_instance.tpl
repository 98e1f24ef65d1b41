{{/* _instance.tpl - makes the Pod templates of offers, which the driver completes (controller/cloud/kube). */}}

{{/* A label's value of any name. */}}
{{- define "muster.slug" -}}
{{- regexReplaceAll "[^-._a-zA-Z0-9]" . "-" | trunc 63 | trimAll "-._" -}}
{{- end -}}

{{/* The label's value that stands for a service's name, as the driver writes it (kube_label in base/io/kube/kube_api):
the name where it can be one, else what is legal of it and eight digits of its SHA-256. */}}
{{- define "muster.label" -}}
{{- if regexMatch "^[a-zA-Z0-9]([-._a-zA-Z0-9]{0,61}[a-zA-Z0-9])?$" . -}}
{{- . -}}
{{- else -}}
{{- list (regexReplaceAll "[^-._a-zA-Z0-9]" . "-" | trimAll "-._" | trunc 54 | trimAll "-._") (sha256sum . | trunc 8) | join "-" | trimPrefix "-" -}}
{{- end -}}
{{- end -}}

{{/* Thousandths of a core of a CPU quantity. */}}
{{- define "muster.millicores" -}}
{{- $text := toString . -}}
{{- if hasSuffix "m" $text -}}
{{- trimSuffix "m" $text -}}
{{- else -}}
{{- mulf (float64 $text) 1000.0 -}}
{{- end -}}
{{- end -}}

{{/* Cores of a CPU quantity, rounded up: an engine's threads. */}}
{{- define "muster.cores" -}}
{{- divf (include "muster.millicores" . | float64) 1000.0 | ceil | int64 -}}
{{- end -}}

{{/* The volume that a service's model is in; nothing where it is in the image. */}}
{{- define "muster.modelVolume" -}}
{{- $model := .model -}}
{{- if $model.pvc }}
name: model
persistentVolumeClaim:
  claimName: {{ $model.pvc.claimName }}
  readOnly: {{ not $model.pull }}
{{- else if $model.hostPath }}
name: model
hostPath:
  path: {{ $model.hostPath.path }}
  type: {{ default "DirectoryOrCreate" $model.hostPath.type }}
{{- else if $model.image }}
name: model
image:
  reference: {{ $model.image.reference }}
  pullPolicy: {{ default "IfNotPresent" $model.image.pullPolicy }}
{{- else if hasKey $model "emptyDir" }}
name: model
emptyDir:
  {{- toYaml $model.emptyDir | nindent 2 }}
{{- end }}
{{- end -}}

{{/* (dict "model" M "readOnly" BOOL): its mount. */}}
{{- define "muster.modelMount" -}}
name: model
mountPath: {{ default "/models" .model.mountPath }}
readOnly: {{ .readOnly }}
{{- with .model.pvc }}
{{- with .subPath }}
subPath: {{ . }}
{{- end }}
{{- end }}
{{- end -}}

{{/* The init container that brings the model. */}}
{{- define "muster.pull" -}}
name: pull-model
securityContext:
  {{- include "muster.containerSecurity" . | nindent 2 }}
{{ toYaml (omit .model.pull "volumeMounts") }}
volumeMounts:
  - {{- include "muster.modelMount" (dict "model" .model "readOnly" false) | nindent 4 }}
  {{- with .model.pull.volumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}

{{/* Settings of the agent as its environment: defaults, then those of instances, accelerator and pool. A Pod that is
told to end has as long as a drain may last: the driver makes its grace period 15 s longer. */}}
{{- define "muster.agentEnv" -}}
{{- $drain := include "muster.seconds" (dict "what" "controller.settings.drain" "value" (default "5m" .root.Values.controller.settings.drain)) | int64 | min 3590 -}}
{{- $settings := dict "engine_log" "inherit" "stop" (printf "%ds" (add $drain 5)) -}}
{{- range $more := list .root.Values.instances.agent .accelerator.agent .pool.agent -}}
{{- $settings = mergeOverwrite $settings (default (dict) $more) -}}
{{- end -}}
{{- $env := list -}}
{{- range $name := keys $settings | sortAlpha -}}
{{- $env = append $env (dict "name" (printf "MUSTER_AGENT_%s" (upper $name)) "value" (get $settings $name | toString)) -}}
{{- end -}}
{{- $env = append $env (dict "name" "MUSTER_ENGINE_DRAIN" "value" (printf "%ds" $drain)) -}}
{{- if and (include "muster.monitored" .root) (ne (default "muster" .pool.engine_kind) "muster") -}}
{{- $env = append $env (dict "name" "MUSTER_AGENT_METRICS_KEY_FILE" "value" "/run/muster-metrics/token") -}}
{{- end -}}
{{- with (default (dict) .accelerator.resources).cpu -}}
{{- $env = append $env (dict "name" "MUSTER_ENGINE_THREADS" "value" (include "muster.cores" .)) -}}
{{- end -}}
{{- toYaml $env -}}
{{- end -}}

{{/* (dict "root" $ "service" S "pool" P "name" ACCELERATOR): the Pod of an offer. */}}
{{- define "muster.podTemplate" -}}
{{- $v := .root.Values -}}
{{- $accelerator := index $v.accelerators .name -}}
{{- $instances := $v.instances -}}
{{- $plain := include "muster.plainResources" $accelerator -}}
{{- $resources := default (dict) $accelerator.resources -}}
{{- $volume := include "muster.modelVolume" .service | fromYaml -}}

{{- $env := concat $instances.env (default (list) $accelerator.env) (default (list) .pool.env)
      (include "muster.agentEnv" (dict "root" .root "accelerator" $accelerator "pool" .pool) | fromYamlArray) -}}
{{- $mounts := concat $instances.extraVolumeMounts (default (list) .pool.extraVolumeMounts)
      (list (dict "name" "tmp" "mountPath" "/tmp")) -}}
{{- $volumes := concat $instances.extraVolumes (default (list) .pool.extraVolumes)
      (list (dict "name" "tmp" "emptyDir" (dict))) -}}
{{- if $volume -}}
{{- $volumes = append $volumes $volume -}}
{{- $mounts = append $mounts (include "muster.modelMount" (dict "model" .service.model "readOnly" true) | fromYaml) -}}
{{- end -}}
{{- with $accelerator.shmSize -}}
{{- $volumes = append $volumes (dict "name" "shm" "emptyDir" (dict "medium" "Memory" "sizeLimit" .)) -}}
{{- $mounts = append $mounts (dict "name" "shm" "mountPath" "/dev/shm") -}}
{{- end -}}
{{- if $v.tls.enabled -}}
{{- $volumes = concat $volumes (include "muster.caVolume" .root | fromYamlArray) -}}
{{- $mounts = append $mounts (dict "name" "ca" "mountPath" "/etc/muster-ca" "readOnly" true) -}}
{{- end -}}
{{- if include "muster.monitored" .root -}}
{{- $volumes = concat $volumes (include "muster.metricsVolume" .root | fromYamlArray) -}}
{{- $mounts = append $mounts (dict "name" "metrics" "mountPath" "/run/muster-metrics" "readOnly" true) -}}
{{- end -}}
{{- if $v.tracing.endpoint -}}
{{- $env = concat $env (include "muster.tracingEnv" .root | fromYamlArray) -}}
{{- end -}}
{{- if include "muster.tracingSecret" .root -}}
{{- $volumes = concat $volumes (include "muster.tracingVolume" .root | fromYamlArray) -}}
{{- $mounts = append $mounts (dict "name" "tracing" "mountPath" "/run/muster-tracing" "readOnly" true) -}}
{{- end -}}

{{- /* The agent of an engine of another make speaks for it at the first free port above that of its probes. */}}
{{- $spoken := eq (default "muster" .pool.engine_kind) "muster" | ternary (list) (list (dict "name" "translator" "containerPort" 8101)) -}}
{{- $container := dict "name" "muster"
      "command" (list "muster")
      "imagePullPolicy" $v.image.pullPolicy
      "ports" (concat (list (dict "name" "engine" "containerPort" 8200) (dict "name" "agent" "containerPort" 8100)) $spoken)
      "env" $env "volumeMounts" $mounts -}}
{{- $image := default $accelerator.image .pool.image -}}
{{- with $image -}}
{{- $_ := set $container "image" (include "muster.image" (dict "root" $.root "image" .)) -}}
{{- with .pullPolicy -}}
{{- $_ := set $container "imagePullPolicy" . -}}
{{- end -}}
{{- end -}}
{{- if not $plain -}}
{{- $all := dict "limits" $resources "requests" (merge (dict) (default (dict) $accelerator.requests) $resources) -}}
{{- with $accelerator.claims -}}
{{- $named := list -}}
{{- range . -}}{{- $named = append $named (pick . "name") -}}{{- end -}}
{{- $_ := set $all "claims" $named -}}
{{- end -}}
{{- $_ := set $container "resources" $all -}}
{{- end -}}

{{- $tolerations := concat $instances.tolerations (default (list) $accelerator.tolerations) -}}
{{- if not $plain -}}
{{- range $name := keys $resources | sortAlpha -}}
{{- if contains "/" $name -}}
{{- $tolerations = append $tolerations (dict "key" $name "operator" "Exists") -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- $inits := concat $instances.initContainers (default (list) .pool.initContainers) -}}
{{- if .service.model.pull -}}
{{- $inits = prepend $inits (include "muster.pull" .service | fromYaml) -}}
{{- end -}}

{{- $spec := dict
      "serviceAccountName" (include "muster.account" (dict "root" .root "part" "instance"))
      "imagePullSecrets" $v.image.pullSecrets
      "nodeSelector" $instances.nodeSelector
      "tolerations" $tolerations
      "affinity" (default (dict) $accelerator.affinity)
      "topologySpreadConstraints" $instances.topologySpreadConstraints
      "resourceClaims" (default (list) $accelerator.claims)
      "runtimeClassName" (default "" $accelerator.runtimeClassName)
      "initContainers" $inits
      "volumes" $volumes -}}
{{- range $name := keys $spec -}}
{{- if empty (get $spec $name) -}}{{- $_ := unset $spec $name -}}{{- end -}}
{{- end -}}
{{- $_ := set $spec "containers" (concat (list $container) $instances.extraContainers) -}}

{{- $labels := merge (dict
      "app.kubernetes.io/instance" .root.Release.Name
      "app.kubernetes.io/part-of" "muster"
      "muster.dev/service" (include "muster.label" .service.name)
      "muster.dev/pool" (include "muster.slug" .pool.name)
      "muster.dev/engine" (default "muster" .pool.engine_kind)) $instances.podLabels $v.commonLabels -}}
{{- if not .service.name -}}{{- $labels = omit $labels "muster.dev/service" "muster.dev/pool" -}}{{- end -}}
{{- $metadata := dict "labels" $labels -}}
{{- with merge (dict) $instances.podAnnotations $v.commonAnnotations -}}
{{- $_ := set $metadata "annotations" . -}}
{{- end -}}
{{- toYaml (dict "metadata" $metadata "spec" $spec) -}}
{{- end -}}

{{/* Volumes that Pods of several parts have. Only what a Pod needs of a Secret is in them. */}}
{{- define "muster.secretVolume" -}}
- name: fleet
  secret:
    secretName: {{ include "muster.secretName" . }}
    defaultMode: 0440
    items:
      - { key: secret, path: secret }
{{- end -}}

{{- define "muster.metricsVolume" -}}
- name: metrics
  secret:
    secretName: {{ include "muster.metricsSecretName" . }}
    defaultMode: 0440
    items:
      - { key: token, path: token }
{{- end -}}

{{- define "muster.tracingVolume" -}}
- name: tracing
  secret:
    secretName: {{ .Values.tracing.headersSecret.name }}
    defaultMode: 0440
    items:
      - { key: {{ .Values.tracing.headersSecret.key }}, path: headers }
{{- end -}}

{{- define "muster.caVolume" -}}
- name: ca
  secret:
    secretName: {{ include "muster.controllerTlsSecret" . }}
    defaultMode: 0444
    items:
      - { key: ca.crt, path: ca.crt }
{{- end -}}

{{/* (dict "root" $ "secret" NAME): a certificate with its key. */}}
{{- define "muster.tlsVolume" -}}
- name: tls
  secret:
    secretName: {{ .secret }}
    defaultMode: 0440
    items:
      - { key: tls.crt, path: tls.crt }
      - { key: tls.key, path: tls.key }
{{- end -}}
