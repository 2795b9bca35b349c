{{/* Names and labels. `.` is the root everywhere in this file, unless a helper says otherwise. */}}

{{/* A value of the labels that select, which never change: as it was given. */}}
{{- define "podium.name" -}}
{{- default .Chart.Name (include "podium.override" (list . "nameOverride")) | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{/* A name of at most so many characters, with a digest in place of what is left out: (list name length) */}}
{{- define "podium.shortened" -}}
{{- $name := index . 0 -}}
{{- if gt (len $name) (int (index . 1)) -}}
{{- printf "%s-%s" (trunc (sub (index . 1) 9 | int) $name | trimSuffix "-") (sha256sum $name | trunc 8) -}}
{{- else -}}
{{- $name -}}
{{- end -}}
{{- end -}}

{{/* A Service's name begins with a letter and has neither a dot nor a capital; a release's, and the alias under which
     a chart has this one as a dependency, may. What is too long is cut off, and Helm refuses a second release to which
     another's objects would belong. */}}
{{- define "podium.fullname" -}}
{{- default (include "podium.prefix" (list . (include "podium.name" .))) (include "podium.override" (list . "fullnameOverride")) -}}
{{- end -}}

{{/* The same by the release and a chart's name alone: (list root "podium"). */}}
{{- define "podium.prefix" -}}
{{- $release := (index . 0).Release.Name -}}
{{- $name := last . | lower | replace "_" "-" -}}
{{- $full := contains $name $release | ternary $release (printf "%s-%s" $release $name) | replace "." "-" -}}
{{- if not (regexMatch "^[a-z]" $full) }}{{ $full = printf "r-%s" $full }}{{ end -}}
{{- $full | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{/* A name that the values give, or nothing: (list root "nameOverride"). */}}
{{- define "podium.override" -}}
{{- $given := get (index . 0).Values (last .) -}}
{{- if and $given (not (regexMatch "^[a-z]([-a-z0-9]{0,38}[a-z0-9])?$" $given)) -}}
{{- fail (printf "%s: got '%s'; allowed are up to 40 small letters, digits and hyphens, a letter first and no hyphen last, as in names of Kubernetes" (last .) $given) -}}
{{- end -}}
{{- $given -}}
{{- end -}}

{{/* A size such as 40Gi in bytes. */}}
{{- define "podium.bytes" -}}
{{- $powers := dict "Ki" 1 "Mi" 2 "Gi" 3 "Ti" 4 "" 0 -}}
{{- $bytes := regexFind "^[0-9]+" . | int64 -}}
{{- range until (index $powers (regexFind "[KMGT]i$" .) | int) }}{{ $bytes = mul $bytes 1024 }}{{ end -}}
{{- $bytes -}}
{{- end -}}

{{/* Of one component: (list root "judge"). A name has at most 63 characters; pods of a StatefulSet, as pools are, have
     its name and a hash in a label, those of a LeaderWorkerSet the group's number too, together at most 63. */}}
{{- define "podium.componentName" -}}
{{- $component := index . 1 -}}
{{- $most := 63 -}}
{{- if hasPrefix "inference-" $component }}{{ $most = 52 }}{{ end -}}
{{- if hasPrefix "nodes-" $component }}{{ $most = 49 }}{{ end -}}
{{- printf "%s-%s" (include "podium.shortened" (list (include "podium.fullname" (index . 0)) (sub (sub $most 1) (len $component)))) $component -}}
{{- end -}}

{{/* host.namespace.svc.domain of a component: (list root "judge"). */}}
{{- define "podium.host" -}}
{{- $root := index . 0 -}}
{{- printf "%s.%s.svc.%s" (include "podium.componentName" .) $root.Release.Namespace $root.Values.clusterDomain -}}
{{- end -}}

{{/* The only labels that select: they never change between releases of the chart. (list root "judge") */}}
{{- define "podium.selectorLabels" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: {{ include "podium.name" $root | quote }}
app.kubernetes.io/instance: {{ $root.Release.Name | quote }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{/* All of an object's, with commonLabels and more: (list root "judge"), or with others as third. */}}
{{- define "podium.labels" -}}
{{- $root := index . 0 -}}
{{- $own := merge (dict "app.kubernetes.io/part-of" "podium") (include "podium.selectorLabels" . | fromYaml) -}}
{{- $labels := dict "app.kubernetes.io/version" $root.Chart.AppVersion "app.kubernetes.io/managed-by" $root.Release.Service "helm.sh/chart" (printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-") -}}
{{- $common := default dict $root.Values.commonLabels -}}
{{- $theirs := default dict (gt (len .) 2 | ternary (last .) dict) -}}
{{- /* What watches is found by somebody else's labels, and by none of ours. */ -}}
{{- $watches := eq (index . 1) "monitoring" -}}
{{- range $name, $_ := $watches | ternary $common (mergeOverwrite (dict) $common $theirs) -}}
{{- if hasKey $own $name -}}
{{- fail (printf "labels: '%s' is Podium's own, by which its objects are found and selected; leave it out of commonLabels and of labels" $name) -}}
{{- end -}}
{{- end -}}
{{- if $watches -}}
{{- mergeOverwrite $labels $common $own $theirs | toYaml -}}
{{- else -}}
{{- mergeOverwrite $labels $common $theirs $own | toYaml -}}
{{- end -}}
{{- end -}}

{{/* Name, namespace and labels of a component's object: (list root "judge"), or with a name of its own
     as third, and with other labels as fourth. */}}
{{- define "podium.metadata" -}}
{{- $root := index . 0 -}}
name: {{ if gt (len .) 2 }}{{ index . 2 | quote }}{{ else }}{{ include "podium.componentName" . }}{{ end }}
namespace: {{ $root.Release.Namespace | quote }}
labels:
  {{- include "podium.labels" (gt (len .) 3 | ternary (list $root (index . 1) (last .)) (list $root (index . 1))) | nindent 2 }}
{{- end -}}

{{/* (list root service tagSuffix) */}}
{{- define "podium.image" -}}
{{- $image := (index . 0).Values.image -}}
{{- $name := printf "%s/%s" $image.repository (index . 1) -}}
{{- with $image.registry }}{{ $name = printf "%s/%s" . $name }}{{ end -}}
{{- $suffix := default "" (index . 2) -}}
{{- $digest := get (default dict $image.digests) (printf "%s%s" (index . 1) $suffix) -}}
{{- printf "%s:%s%s" $name (default (index . 0).Chart.AppVersion $image.tag) $suffix }}{{ with $digest }}@{{ . }}{{ end -}}
{{- end -}}

{{- define "podium.authSecret" -}}
{{- default (printf "%s-auth" (include "podium.fullname" .)) .Values.auth.existingSecret -}}
{{- end -}}

{{- define "podium.databaseSecret" -}}
{{- default (printf "%s-database" (include "podium.fullname" .)) .Values.database.existingSecret -}}
{{- end -}}

{{/* The pools with poolDefaults filled in, as JSON {"pools": [...]}. */}}
{{- define "podium.pools" -}}
{{- $pools := list -}}
{{- $names := dict -}}
{{- range .Values.pools -}}
{{- if hasKey $names .name -}}
{{- fail (printf "pools: the name '%s' stands there twice" .name) -}}
{{- end -}}
{{- $_ := set $names .name true -}}
{{- $pool := mergeOverwrite (deepCopy $.Values.poolDefaults) (deepCopy .) -}}
{{- if eq $pool.weightMode "auto" -}}
{{- $_ := set $pool "weightMode" (ternary "adapter" "merged" (gt (int $pool.gpus) 0)) -}}
{{- end -}}
{{- $pools = append $pools (include "podium.splitPool" (list $ $pool) | fromJson) -}}
{{- end -}}
{{- range $several := $pools -}}
{{- range $names | keys -}}
{{- if and (gt (int $several.nodes) 1) (regexMatch (printf "^%s-[0-9]+$" $several.name) .) -}}
{{- fail (printf "pools: the name '%s' is that of a group of nodes of the pool '%s'; give one of them another" . $several.name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- dict "pools" $pools | toJson -}}
{{- end -}}

{{/* A pool with `tensorParallel` worked out, as JSON, where its engine fits its GPUs: (list root pool).
     On the CPU each pod has one worker, as a pod of one GPU. */}}
{{- define "podium.splitPool" -}}
{{- $pool := index . 1 -}}
{{- $each := max 1 (int $pool.gpus) -}}
{{- $all := mul (int $pool.nodes) $each -}}
{{- $has := printf "nodes %d with gpus %d each has %d" (int $pool.nodes) (int $pool.gpus) $all -}}
{{- if eq (int $pool.tensorParallel) 0 -}}
{{- if mod $all (int $pool.pipelineParallel) -}}
{{- fail (printf "pools: '%s' has pipelineParallel %d, which does not divide its GPUs: %s" $pool.name (int $pool.pipelineParallel) $has) -}}
{{- end -}}
{{- $_ := set $pool "tensorParallel" (div $all (int $pool.pipelineParallel)) -}}
{{- end -}}
{{- $wanted := mul (int $pool.tensorParallel) (int $pool.pipelineParallel) -}}
{{- if ne $wanted $all -}}
{{- fail (printf "pools: '%s' has tensorParallel %d times pipelineParallel %d, which is %d GPUs; %s" $pool.name (int $pool.tensorParallel) (int $pool.pipelineParallel) $wanted $has) -}}
{{- end -}}
{{- if gt (int $pool.nodes) 1 -}}
{{- if not ((index . 0).Capabilities.APIVersions.Has "leaderworkerset.x-k8s.io/v1") -}}
{{- fail (printf "pools: '%s' has nodes %d, which needs LeaderWorkerSets, and this cluster has no leaderworkerset.x-k8s.io/v1. Install LeaderWorkerSet (https://lws.sigs.k8s.io), or set nodes to 1. Without a cluster: helm template --api-versions leaderworkerset.x-k8s.io/v1" $pool.name (int $pool.nodes)) -}}
{{- end -}}
{{- end -}}
{{- $pool | toJson -}}
{{- end -}}

{{/* How many jobs run at once unless controller.settings say it: as many as the pools take. A pool of
     merged weights takes one, one of adapters MAX_JOBS_PER_POOL. */}}
{{- define "podium.activeJobs" -}}
{{- $shared := int (dig "MAX_JOBS_PER_POOL" 16 (default dict .Values.controller.settings)) -}}
{{- $jobs := 0 -}}
{{- range (include "podium.pools" . | fromJson).pools -}}
{{- $jobs = add $jobs (ternary 1 $shared (eq .weightMode "merged")) -}}
{{- end -}}
{{- min $jobs 1000 -}}
{{- end -}}

{{/* name=address of every pool, the first one first. */}}
{{- define "podium.poolAddresses" -}}
{{- $found := list -}}
{{- range .Values.pools -}}
{{- $component := printf "inference-%s" .name -}}
{{- $found = append $found (printf "%s=%s" .name (include "podium.address" (list $ $component "inference"))) -}}
{{- end -}}
{{- join "," $found -}}
{{- end -}}

{{- define "podium.firstPool" -}}
{{- printf "inference-%s" (index .Values.pools 0).name -}}
{{- end -}}
