{{/* Whole objects that several services have. They take what the helpers of _pod.tpl take. */}}

{{- define "podium.serviceAccount" -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  {{- include "podium.metadata" (list .root .component) | nindent 2 }}
  {{- with .annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
automountServiceAccountToken: false
{{- end -}}

{{/* Headless: gRPC clients see every pod and balance over them, so they dial the pods' own ports. */}}
{{- define "podium.headlessService" -}}
{{- /* By the port's name alone a mesh would read gRPC in what is encrypted. */ -}}
{{- $tls := .root.Values.tls.existingSecret -}}
apiVersion: v1
kind: Service
metadata:
  {{- include "podium.metadata" (list .root .component) | nindent 2 }}
spec:
  clusterIP: None
  selector:
    {{- include "podium.selectorLabels" (list .root .component) | nindent 4 }}
  ports:
    {{- range $name, $port := omit (get (include "podium.ports" . | fromYaml) .service) "health" "metrics" }}
    - {name: {{ $name }}, port: {{ $port }}, targetPort: {{ $name }}, protocol: TCP{{ if and $tls (eq $name "grpc") }}, appProtocol: tls{{ end }}}
    {{- end }}
{{- end -}}

{{- define "podium.disruptionBudget" -}}
{{- $scaled := and (hasKey .values "autoscaling") (dig "autoscaling" "enabled" false .values) -}}
{{- $least := ternary (dig "autoscaling" "minReplicas" 1 .values) .values.replicas $scaled -}}
{{- if and .root.Values.podDisruptionBudgets.enabled (gt (int $least) 1) }}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  {{- include "podium.metadata" (list .root .component) | nindent 2 }}
spec:
  maxUnavailable: 1
  selector:
    matchLabels:
      {{- if gt (int (dig "nodes" 1 .values)) 1 }}
      # One pod that goes takes its group along: no other group loses one meanwhile.
      {{- include "podium.groupLabels" (list .) | nindent 6 }}
      {{- else }}
      {{- include "podium.selectorLabels" (list .root .component) | nindent 6 }}
      {{- end }}
{{- end }}
{{- end -}}

{{- define "podium.autoscaler" -}}
{{- if (.values.autoscaling).enabled }}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata:
  {{- include "podium.metadata" (list .root .component) | nindent 2 }}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: {{ include "podium.componentName" (list .root .component) }}}
  minReplicas: {{ .values.autoscaling.minReplicas }}
  maxReplicas: {{ .values.autoscaling.maxReplicas }}
  metrics:
    - type: Resource
      resource:
        name: cpu
        target: {type: Utilization, averageUtilization: {{ .values.autoscaling.targetCPUUtilizationPercentage }}}
{{- end }}
{{- end -}}

{{/* KEDA's. What waits is summed over the pods, and KEDA divides it by `threshold` to get how many. */}}
{{- define "podium.poolScaler" -}}
{{- $scaling := default dict .values.autoscaling -}}
{{- if $scaling.enabled }}
{{- if not $scaling.prometheusAddress -}}
{{- fail (printf "pools: autoscaling of '%s' needs prometheusAddress, the URL of the Prometheus that scrapes its pods" .values.name) -}}
{{- end -}}
{{- if gt (int $scaling.minReplicas) (int $scaling.maxReplicas) -}}
{{- fail (printf "pools: autoscaling of '%s' has minReplicas %d, which is more than maxReplicas %d" .values.name (int $scaling.minReplicas) (int $scaling.maxReplicas)) -}}
{{- end }}
---
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata:
  {{- include "podium.metadata" (list .root .component) | nindent 2 }}
spec:
  {{- if gt (int .values.nodes) 1 }}
  scaleTargetRef: {apiVersion: leaderworkerset.x-k8s.io/v1, kind: LeaderWorkerSet, name: {{ include "podium.componentName" (list .root (include "podium.nodesName" .)) }}}
  {{- else }}
  scaleTargetRef: {apiVersion: apps/v1, kind: StatefulSet, name: {{ include "podium.componentName" (list .root .component) }}}
  {{- end }}
  minReplicaCount: {{ int $scaling.minReplicas }}
  maxReplicaCount: {{ int $scaling.maxReplicas }}
  advanced:
    horizontalPodAutoscalerConfig:
      behavior:
        scaleDown:
          stabilizationWindowSeconds: {{ int $scaling.scaleDownSeconds }}
  triggers:
    - type: prometheus
      metadata:
        serverAddress: {{ $scaling.prometheusAddress | quote }}
        query: sum(vllm:num_requests_waiting{namespace="{{ .root.Release.Namespace }}", podium_release="{{ .root.Release.Name }}", podium_component="{{ .component }}"})
        threshold: {{ int $scaling.waitingRequests | quote }}
{{- end }}
{{- end -}}

{{/* A claim of `persistence`, unless one is named: (dict "root" "component" "persistence" "accessMode") */}}
{{- define "podium.claim" -}}
{{- if and .persistence.enabled (not .persistence.existingClaim) }}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata:
  {{- include "podium.metadata" (list .root .component) | nindent 2 }}
  {{- if .persistence.keep }}
  annotations:
    helm.sh/resource-policy: keep
  {{- end }}
spec:
  accessModes: [{{ default "ReadWriteOnce" .accessMode }}]
  {{- with .persistence.storageClass }}
  storageClassName: {{ . }}
  {{- end }}
  resources:
    requests:
      storage: {{ .persistence.size }}
{{- end }}
{{- end -}}

{{/* The volume of `persistence`: (dict "root" "component" "persistence" "name") */}}
{{- define "podium.volume" -}}
- name: {{ .name }}
  {{- if .persistence.enabled }}
  persistentVolumeClaim:
    claimName: {{ default (include "podium.componentName" (list .root .component)) .persistence.existingClaim }}
  {{- else }}
  emptyDir: {}
  {{- end }}
{{- end -}}

{{/* How many pods of each component must be there at least, as JSON {"expected": [{component, replicas}]}: of
     what scales, the least; what has none is left out. */}}
{{- define "podium.expectedReplicas" -}}
{{- $all := list -}}
{{- range $component := list "controller" "registry" "rollout" "judge" "gitops" "tracking" "console" -}}
{{- $all = append $all (dict "component" $component "values" (index $.Values $component | default (dict "enabled" false))) -}}
{{- end -}}
{{- range (include "podium.pools" . | fromJson).pools -}}
{{- $all = append $all (dict "component" (printf "inference-%s" .name) "values" .) -}}
{{- end -}}
{{- range (include "podium.trainerPools" . | fromJson).pools -}}
{{- $all = append $all (dict "component" (printf "trainers-%s" .name) "values" (dict "replicas" (ternary 0 1 (default false (.autoscaling).enabled)))) -}}
{{- end -}}
{{- $found := list -}}
{{- range $all -}}
{{- $scaled := and (hasKey .values "autoscaling") (dig "autoscaling" "enabled" false .values) -}}
{{- $least := ternary (dig "autoscaling" "minReplicas" 1 .values) (dig "replicas" 1 .values) $scaled | int -}}
{{- if and $least (dig "enabled" true .values) -}}
{{- $found = append $found (dict "component" .component "replicas" $least) -}}
{{- end -}}
{{- end -}}
{{- dict "expected" $found | toJson -}}
{{- end -}}

{{/* The links of a dashboard or panel whose places the values name, as JSON {"links": [...]}: (list
     monitoring links). */}}
{{- define "podium.dashboardLinks" -}}
{{- $urls := dict "RUNBOOK_URL" (default "" ((index . 0).rules).runbookBaseUrl) "CONSOLE_URL" (default "" (index . 0).dashboards.consoleUrl) -}}
{{- $kept := list -}}
{{- range $link := index . 1 -}}
{{- $known := true -}}
{{- range $word, $url := $urls -}}
{{- if hasPrefix $word (default "" $link.url) -}}
{{- $known = ne $url "" -}}
{{- $_ := set $link "url" (replace $word $url $link.url) -}}
{{- end -}}
{{- end -}}
{{- if $known }}{{ $kept = append $kept $link }}{{ end -}}
{{- end -}}
{{- dict "links" $kept | toJson -}}
{{- end -}}
