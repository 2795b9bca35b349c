{{/* The trainer pools with trainerPoolDefaults filled in, and below them what `trainer` says, as JSON
     {"pools": [...]}. */}}
{{- define "podium.trainerPools" -}}
{{- $pools := list -}}
{{- $names := dict -}}
{{- $served := list -}}
{{- range .Values.pools -}}
{{- $served = append $served (default $.Values.poolDefaults.model .model) -}}
{{- end -}}
{{- range .Values.trainerPools -}}
{{- if hasKey $names .name -}}
{{- fail (printf "trainerPools: the name '%s' stands there twice" .name) -}}
{{- end -}}
{{- $_ := set $names .name true -}}
{{- if not (has .baseModel $served) -}}
{{- fail (printf "trainerPools: '%s' has the baseModel '%s', which none of the pools serves; they serve %s" .name .baseModel (join ", " $served)) -}}
{{- end -}}
{{- $pool := pick $.Values.trainer "tagSuffix" "resources" "sharedMemory" "scratch" "settings" "extraEnv" "pod" | deepCopy -}}
{{- range $key, $value := mergeOverwrite (deepCopy $.Values.trainerPoolDefaults) (deepCopy .) -}}
{{- if kindIs "map" $value -}}
{{- $_ := set $pool $key (mergeOverwrite (default (dict) (get $pool $key)) $value) -}}
{{- else if or $value (not (hasKey $pool $key)) -}}
{{- $_ := set $pool $key $value -}}
{{- end -}}
{{- end -}}
{{- $pools = append $pools (set $pool "model" .baseModel) -}}
{{- end -}}
{{- dict "pools" $pools | toJson -}}
{{- end -}}

{{/* What the controller is told of them. */}}
{{- define "podium.trainerPoolSettings" -}}
{{- $told := dict -}}
{{- range (include "podium.trainerPools" . | fromJson).pools -}}
{{- $address := include "podium.address" (list $ (printf "trainers-%s" .name) "trainer") -}}
{{- $setting := dict "address" $address "base_model" .baseModel "max_jobs" (int .maxJobs) "gpus" (int .gpus) -}}
{{- if (.autoscaling).enabled }}{{ $_ := set $setting "scales_to_zero" true }}{{ end -}}
{{- $_ := set $told .name $setting -}}
{{- end -}}
{{- $told | toJson -}}
{{- end -}}

{{/* KEDA's, of no pod or one: one while a job trains there, or would if it were there. Of a controller that is
     away there is no number, which is an error to KEDA (ignoreNullValues), and on an error it leaves the
     pool as it is (no `fallback`). */}}
{{- define "podium.trainerPoolScaler" -}}
{{- $scaling := default dict .values.autoscaling -}}
{{- if $scaling.enabled }}
{{- if not $scaling.prometheusAddress -}}
{{- fail (printf "trainerPools: autoscaling of '%s' needs prometheusAddress, the URL of the Prometheus that scrapes the controller" .values.name) -}}
{{- end }}
{{- $of := printf "{namespace=%q, podium_release=%q, pool=%q}" .root.Release.Namespace .root.Release.Name .values.name }}
---
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata:
  {{- include "podium.metadata" (list .root .component) | nindent 2 }}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: {{ include "podium.componentName" (list .root .component) }}}
  minReplicaCount: 0
  maxReplicaCount: 1
  cooldownPeriod: {{ int $scaling.scaleDownSeconds }}
  triggers:
    - type: prometheus
      metadata:
        serverAddress: {{ $scaling.prometheusAddress | quote }}
        query: max(podium_controller_trainer_pool_jobs{{ $of }}) + max(podium_controller_trainer_pool_waiting{{ $of }})
        threshold: "1"
        ignoreNullValues: "false"
{{- end }}
{{- end -}}

{{/* The Job that the controller makes the trainers of one pool's jobs from; it adds what is the job's own:
     nodes, GPUs, queue. (list root pool) */}}
{{- define "podium.trainerJob" -}}
{{- $root := index . 0 -}}
{{- $pool := index . 1 -}}
{{- $values := deepCopy $root.Values.trainer -}}
{{- range $key, $value := $pool.trainer -}}
{{- if kindIs "map" $value -}}
{{- $_ := set $values $key (mergeOverwrite (get $values $key) $value) -}}
{{- else if $value -}}
{{- $_ := set $values $key $value -}}
{{- end -}}
{{- end -}}
{{- $own := dict "REGISTRY_ADDRESS" (include "podium.address" (list $root "registry" "registry")) }}
{{- /* A node whose GPU the container does not see would train on its CPU, unsaid. */}}
{{- if gt (int $values.gpus) 0 }}{{ $_ := set $own "DEVICE" "cuda" }}{{ end }}
{{- $c := dict "root" $root "component" "trainer" "service" "trainer" "values" $values "own" $own "scratch" $values.scratch "models" (list $pool) "variables" (include "podium.modelEnv" $pool | fromYamlArray) -}}
apiVersion: batch/v1
kind: Job
metadata:
  {{- include "podium.metadata" (list $root "trainer") | nindent 2 }}
spec:
  backoffLimit: {{ $values.restarts }}
  template:
    metadata:
      {{- include "podium.podMetadata" $c | nindent 6 }}
    spec:
      {{- include "podium.podSecurity" $c | nindent 6 }}
      restartPolicy: Never
      terminationGracePeriodSeconds: {{ include "podium.graceSeconds" $root }}
      {{- include "podium.placement" $c | nindent 6 }}
      initContainers:
        {{- include "podium.modelDownloads" $c | nindent 8 }}
      containers:
        {{- include "podium.container" $c | nindent 8 }}
          env:
            {{- include "podium.env" $c | nindent 12 }}
          volumeMounts:
            {{- include "podium.commonMounts" $c | nindent 12 }}
            {{- include "podium.modelMounts" $c | nindent 12 }}
      volumes:
        {{- include "podium.commonVolumes" $c | nindent 8 }}
        {{- include "podium.modelVolumes" $c | nindent 8 }}
{{- end -}}
