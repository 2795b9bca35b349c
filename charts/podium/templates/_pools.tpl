{{/* The pods of a pool, and the objects of one over several nodes. They take what the helpers of _pod.tpl
     take, with the pool as `values`. */}}

{{/* The template of a pod that serves, or, with `ports: nodes`, that works for one that does. */}}
{{- define "podium.poolPod" -}}
metadata:
  {{- include "podium.podMetadata" . | nindent 2 }}
spec:
  {{- include "podium.podSecurity" . | nindent 2 }}
  terminationGracePeriodSeconds: {{ include "podium.graceSeconds" .root }}
  {{- include "podium.placement" . | nindent 2 }}
  initContainers:
    {{- include "podium.modelDownloads" . | nindent 4 }}
  containers:
    {{- include "podium.container" . | nindent 4 }}
      env:
        {{- include "podium.env" . | nindent 8 }}
      volumeMounts:
        {{- include "podium.commonMounts" . | nindent 8 }}
        {{- include "podium.modelMounts" . | nindent 8 }}
  volumes:
    {{- include "podium.commonVolumes" . | nindent 4 }}
    {{- include "podium.modelVolumes" . | nindent 4 }}
{{- end -}}

{{/* The name of the pods that work for a pool's first ones, and of the LeaderWorkerSet: not the pool's
     own, which is the Service's that clients know, because the LeaderWorkerSet has one of its name. */}}
{{- define "podium.nodesName" -}}
{{- printf "nodes-%s" .values.name -}}
{{- end -}}

{{/* The labels of the pods of one group, or of all: (list context index). LeaderWorkerSet's own. */}}
{{- define "podium.groupLabels" -}}
leaderworkerset.sigs.k8s.io/name: {{ include "podium.componentName" (list (index . 0).root (include "podium.nodesName" (index . 0))) }}
{{- if gt (len .) 1 }}
leaderworkerset.sigs.k8s.io/group-index: {{ index . 1 | quote }}
{{- end }}
{{- end -}}

{{- define "podium.nodesPool" -}}
{{- $nodes := include "podium.nodesName" . -}}
{{- $group := dict "NODES" "$(LWS_GROUP_SIZE)" "NODE_RANK" "$(LWS_WORKER_INDEX)" "LEADER_ADDRESS" "$(LWS_LEADER_ADDRESS)" -}}
{{- $leader := set (omit . "own") "own" (merge $group .own) -}}
{{- $own := omit $leader.own "POOL_ADDRESS" "REGISTRY_ADDRESS" -}}
{{- $worker := merge (dict "component" $nodes "account" .component "ports" "nodes" "own" $own) (omit . "own" "component") -}}
apiVersion: leaderworkerset.x-k8s.io/v1
kind: LeaderWorkerSet
metadata:
  {{- include "podium.metadata" (list .root $nodes) | nindent 2 }}
spec:
  {{- if not (.values.autoscaling).enabled }}
  replicas: {{ .values.replicas }}
  {{- end }}
  startupPolicy: LeaderCreated
  leaderWorkerTemplate:
    size: {{ .values.nodes }}
    # A node that is gone takes its part of the model along, and the others wait for it in vain.
    restartPolicy: RecreateGroupOnPodRestart
    leaderTemplate:
      {{- include "podium.poolPod" $leader | nindent 6 }}
    workerTemplate:
      {{- include "podium.poolPod" $worker | nindent 6 }}
{{- end -}}

{{/* vLLM's processes trust whoever reaches them, on ports that they choose: the pods of one group reach
     each other, and nobody else does. */}}
{{- define "podium.groupPolicies" -}}
{{- $scaling := default dict .values.autoscaling -}}
{{- $groups := ternary $scaling.maxReplicas .values.replicas (default false $scaling.enabled) | int -}}
{{- $nodes := include "podium.nodesName" . -}}
{{- range $index := until $groups }}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  {{- include "podium.metadata" (list $.root $nodes (printf "%s-%d" (include "podium.componentName" (list $.root $nodes)) $index)) | nindent 2 }}
spec:
  podSelector:
    matchLabels:
      {{- include "podium.groupLabels" (list $ $index) | nindent 6 }}
  policyTypes: [Ingress, Egress]
  ingress:
    - from:
        - podSelector:
            matchLabels:
              {{- include "podium.groupLabels" (list $ $index) | nindent 14 }}
  egress:
    - to:
        - podSelector:
            matchLabels:
              {{- include "podium.groupLabels" (list $ $index) | nindent 14 }}
{{- end }}
{{- end -}}
