{{/* _network.tpl - peers of NetworkPolicies. */}}

{{/* (dict "root" $ "part" P): the Pods of a part. */}}
{{- define "muster.part" -}}
- podSelector:
    matchLabels:
      {{- include "muster.selector" . | nindent 6 }}
{{- end }}

{{/* Everybody resolves names. */}}
{{- define "muster.dns" -}}
- ports:
    - { port: 53, protocol: UDP }
    - { port: 53, protocol: TCP }
  {{- with .Values.networkPolicy.dnsTo }}
  to:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}
