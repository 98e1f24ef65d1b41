{{/* _check.tpl - refuses values that the schema cannot refuse, each with what to do about it. */}}
{{- define "muster.check" -}}
{{- $v := .Values -}}
{{- if and (gt (int $v.controller.replicas) 1) (not (include "muster.sharedStore" .)) -}}
{{- fail "controller.replicas: several controllers need a store that they share; set controller.store.kubernetes, or controller.store.url to a Redis, or controller.replicas to 1" -}}
{{- end -}}
{{- if and $v.controller.store.kubernetes $v.controller.store.url -}}
{{- fail "controller.store: there is one store; set either kubernetes or url" -}}
{{- end -}}
{{- if and $v.controller.store.tlsSecret.name (not (hasPrefix "rediss" $v.controller.store.url)) -}}
{{- fail "controller.store.tlsSecret: controller.store.url is no rediss:// or rediss+sentinel:// URL, so that nothing would be encrypted; set such a URL, or clear tlsSecret.name" -}}
{{- end -}}
{{- if and $v.controller.store.tlsSecret.clientCertificate (not $v.controller.store.tlsSecret.name) -}}
{{- fail "controller.store.tlsSecret.clientCertificate: no Secret has the certificate; set controller.store.tlsSecret.name" -}}
{{- end -}}
{{- if gt (int $v.controller.replicas) 8 -}}
{{- fail "controller.replicas: 8 at most share a store; one leads, so that two or three are enough" -}}
{{- end -}}
{{- if and $v.router.autoscaling.enabled $v.router.keda.enabled -}}
{{- fail "router.autoscaling and router.keda would both set the router's replicas; enable one of them" -}}
{{- end -}}
{{- if and $v.router.autoscaling.enabled (not $v.router.autoscaling.metrics) -}}
{{- $resources := default (dict) $v.router.resources -}}
{{- $cpu := dig "requests" "cpu" (dig "limits" "cpu" "" $resources) $resources -}}
{{- $target := $v.router.autoscaling.targetCPUUtilizationPercentage -}}
{{- if not $cpu -}}
{{- fail "router.autoscaling: a share of router.resources.requests.cpu is its goal, and there is none; set it, or router.autoscaling.metrics" -}}
{{- end -}}
{{- /* Two routers at rest take 8m. Where that is above the goal of one, they stay two, and three stay three. */ -}}
{{- if lt (mulf (include "muster.millicores" $cpu | float64) (divf $target 100.0)) 10.0 -}}
{{- fail (printf "router.autoscaling: %v %% of %v are less than 10m, and a router at rest takes 4m, so that no router would ever go; raise router.resources.requests.cpu" $target $cpu) -}}
{{- end -}}
{{- end -}}
{{- if and $v.router.keda.enabled (not $v.services) -}}
{{- fail "router.keda: it counts the requests of `services`, and there are none; name one, or set router.autoscaling instead" -}}
{{- end -}}
{{- if and $v.controller.persistence.existingClaim (not $v.controller.persistence.enabled) -}}
{{- fail "controller.persistence.existingClaim is named, but controller.persistence.enabled is false; set it to true" -}}
{{- end -}}
{{- if and $v.tls.enabled (not $v.tls.certManager.enabled) (not (and $v.tls.controllerSecret $v.tls.routerSecret)) -}}
{{- fail "tls.enabled: no certificates; set tls.certManager.enabled, or name tls.controllerSecret and tls.routerSecret" -}}
{{- end -}}
{{- if and $v.tls.certManager.enabled (not $v.tls.certManager.issuerRef.name) -}}
{{- fail "tls.certManager.issuerRef.name: no issuer is named; create an Issuer of a CA and name it" -}}
{{- end -}}
{{- if and $v.router.ingress.enabled (not $v.router.ingress.hosts) -}}
{{- fail "router.ingress.hosts: no host; add {host: NAME, path: /}" -}}
{{- end -}}
{{- if and $v.router.httpRoute.enabled (not $v.router.httpRoute.parentRefs) -}}
{{- fail "router.httpRoute.parentRefs: no Gateway; add {name: GATEWAY, namespace: NAMESPACE}" -}}
{{- end -}}
{{- $grace := int (include "muster.routerGrace" .) -}}
{{- $needed := int (include "muster.routerGraceNeeded" .) -}}
{{- if lt $grace $needed -}}
{{- fail (printf "router.terminationGracePeriodSeconds: %d s cut streams that may last router.settings.request_max; want %d or more" $grace $needed) -}}
{{- end -}}
{{- range include "muster.controllers" . | splitList "\n" -}}
{{- if gt (len .) 135 -}}
{{- fail (printf "controller.replicas: the address %s is too long; set fullnameOverride" .) -}}
{{- end -}}
{{- end -}}
{{- if gt (len (include "muster.storeFleet" .)) 64 -}}
{{- fail "controller.store: the names of namespace and release have more than 63 characters together; set fullnameOverride" -}}
{{- end -}}
{{- $names := dict -}}
{{- $offers := 0 -}}
{{- range $name, $accelerator := $v.accelerators -}}
{{- if not (or (hasKey $accelerator "price_per_hour") $accelerator.from_nodes) -}}
{{- fail (printf "accelerators: %s has no price; give price_per_hour, or from_nodes and instances.settings.prices" $name) -}}
{{- end -}}
{{- end -}}
{{- range $service := $v.services -}}
{{- if hasKey $names $service.name -}}
{{- fail (printf "services: two are called %s; rename one" $service.name) -}}
{{- end -}}
{{- $_ := set $names $service.name true -}}
{{- include "muster.checkModel" $service -}}
{{- range $pool := $service.pools -}}
{{- range $name := $pool.accelerators -}}
{{- if not (hasKey $v.accelerators $name) -}}
{{- fail (printf "services: pool %s of %s runs on '%s', which is not in accelerators (%s)" $pool.name $service.name $name (keys $v.accelerators | sortAlpha | join ", ")) -}}
{{- end -}}
{{- $offers = add1 $offers -}}
{{- $offer := include "muster.offer" (dict "service" $service.name "pool" $pool.name "accelerator" $name) -}}
{{- if gt (len $offer) 63 -}}
{{- fail (printf "services: the offer %s has %d characters, 63 at most; shorten the names of service, pool or accelerator" $offer (len $offer)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if $v.serviceObjects.enabled -}}
{{- range $name := keys $v.accelerators -}}
{{- $offers = add1 $offers -}}
{{- if gt (len $name) 63 -}}
{{- fail (printf "accelerators: %s has %d characters, 63 at most are an offer's name" $name (len $name)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if gt (int $offers) 64 -}}
{{- fail (printf "services: their pools name %d accelerators in all, 64 at most; drop some" $offers) -}}
{{- end -}}
{{- if and $v.test.service (not (hasKey $names $v.test.service)) -}}
{{- fail (printf "test.service: no service is called %s" $v.test.service) -}}
{{- end -}}
{{- end -}}

{{/* A service: its model has one source at most, and a pull a volume to write to. */}}
{{- define "muster.checkModel" -}}
{{- $from := list -}}
{{- range $kind := list "pvc" "hostPath" "image" "emptyDir" -}}
{{- if hasKey $.model $kind -}}{{- $from = append $from $kind -}}{{- end -}}
{{- end -}}
{{- if gt (len $from) 1 -}}
{{- fail (printf "services: the model of %s has several sources (%s); keep one" .name (join ", " $from)) -}}
{{- end -}}
{{- if and .model.pull (not $from) -}}
{{- fail (printf "services: the model of %s is pulled into nothing; add pvc, hostPath or emptyDir" .name) -}}
{{- end -}}
{{- if and .model.pull .model.image -}}
{{- fail (printf "services: the model of %s cannot be pulled into an image, which is read-only; use pvc, hostPath or emptyDir" .name) -}}
{{- end -}}
{{- if and (hasKey .model "emptyDir") (not .model.pull) -}}
{{- fail (printf "services: the model of %s is in an empty folder; add `pull`, which fills it" .name) -}}
{{- end -}}
{{- end -}}

{{/* Seconds from the wish to end a router's Pod to SIGKILL: as the user says, else as long as a request may take. */}}
{{- define "muster.routerGraceNeeded" -}}
{{- $longest := default "10m" .Values.router.settings.request_max -}}
{{- add .Values.router.preStopSeconds (include "muster.seconds" (dict "what" "router.settings.request_max" "value" $longest)) -}}
{{- end -}}

{{- define "muster.routerGrace" -}}
{{- $given := .Values.router.terminationGracePeriodSeconds -}}
{{- kindIs "invalid" $given | ternary (add 15 (include "muster.routerGraceNeeded" .)) $given | int64 -}}
{{- end -}}
