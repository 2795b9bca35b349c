{{/* What every pod has in common. Helpers take (dict "root" $ "component" … "service" … "values" …):
     `component` names the objects, `service` the program (a pool's component is inference-NAME), `image`
     the image where it is another service's. */}}

{{/* Ports by service: gRPC, health, metrics, and HTTP where there is any. */}}
{{- define "podium.ports" -}}
controller: {grpc: 50051, health: 50061, metrics: 50071}
registry: {grpc: 50052, health: 50062, metrics: 50072}
inference: {grpc: 50053, health: 50063, metrics: 50073, http: 50083}
rollout: {grpc: 50054, health: 50064, metrics: 50074}
judge: {grpc: 50055, health: 50065, metrics: 50075}
trainer: {grpc: 50056, health: 50066, metrics: 50076}
# Trainer pools.
trainers: {grpc: 50056, health: 50066, metrics: 50076}
gitops: {health: 50067, metrics: 50077}
tracking: {health: 50069, metrics: 50079}
console: {http: 50058, health: 50068, metrics: 50078}
# Of a pool over several nodes, the pods that are not the first.
nodes: {health: 50063, metrics: 50073}
environment: {grpc: 50060}
postgresql: {sql: 5432}
{{- end -}}

{{/* host:port of a service's gRPC: (list root component service) */}}
{{- define "podium.address" -}}
{{- $ports := include "podium.ports" . | fromYaml -}}
{{- printf "%s:%d" (include "podium.host" .) (int (get $ports (index . 2)).grpc) -}}
{{- end -}}

{{/* podDefaults with a pod's own over them, as JSON; volumes and mounts besides them, by name and path. */}}
{{- define "podium.podValues" -}}
{{- $default := .root.Values.podDefaults -}}
{{- $own := default dict .values.pod -}}
{{- $all := mergeOverwrite (dict "labels" dict "annotations" dict) (deepCopy $default) (deepCopy $own) -}}
{{- range $key, $id := dict "volumes" "name" "volumeMounts" "mountPath" -}}
{{- $kept := list -}}
{{- $taken := dict -}}
{{- range concat (get $own $key | default list) (get $default $key | default list) -}}
{{- if not (hasKey $taken (get . $id)) }}{{ $kept = append $kept . }}{{ end -}}
{{- $_ := set $taken (get . $id) true -}}
{{- end -}}
{{- $_ := set $all $key $kept -}}
{{- end -}}
{{- $all | toJson -}}
{{- end -}}

{{/* Keys of a pod's spec and metadata that are about where and as what it runs. */}}
{{- define "podium.placement" -}}
{{- $pod := include "podium.podValues" . | fromJson -}}
{{- with $pod.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $pod.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $pod.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $pod.topologySpreadConstraints }}
topologySpreadConstraints:
  {{- range . }}
  - {{ omit . "labelSelector" | toYaml | nindent 4 | trim }}
    labelSelector:
      matchLabels:
        {{- include "podium.selectorLabels" (list $.root $.component) | nindent 8 }}
  {{- end }}
{{- end }}
{{- with $pod.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with $pod.runtimeClassName }}
runtimeClassName: {{ . }}
{{- end }}
{{- with $pod.schedulerName }}
schedulerName: {{ . }}
{{- end }}
{{- with .root.Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- end -}}

{{- define "podium.podMetadata" -}}
{{- $pod := include "podium.podValues" . | fromJson -}}
labels:
  {{- include "podium.labels" (list .root .component $pod.labels) | nindent 2 }}
annotations:
  kubectl.kubernetes.io/default-container: {{ .service }}
  {{- with $pod.annotations }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}

{{/* Pod security "restricted". `user` where it is not the images' own, `account` where it is
     another component's, `token` for who speaks to the API
     server: the controller, and who reads TrainingJobs. */}}
{{- define "podium.podSecurity" -}}
{{- $user := int (default 10001 .user) -}}
serviceAccountName: {{ include "podium.componentName" (list .root (default .component .account)) }}
automountServiceAccountToken: {{ default false .token }}
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  {{- if .root.Values.fixedUserIds }}
  runAsUser: {{ $user }}
  runAsGroup: {{ $user }}
  fsGroup: {{ $user }}
  {{- end }}
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile:
    type: RuntimeDefault
{{- end -}}

{{- define "podium.containerSecurity" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
{{- end -}}

{{/* Requests and limits with GPUs: (list root resources gpus) */}}
{{- define "podium.resources" -}}
{{- $resources := deepCopy (index . 1) -}}
{{- /* A string: server-side apply before Kubernetes 1.22 takes no number for a quantity. */ -}}
{{- if gt (int (index . 2)) 0 -}}
{{- $gpu := dict (index . 0).Values.gpu.resourceName (toString (int (index . 2))) -}}
{{- $resources = mergeOverwrite $resources (dict "limits" $gpu) -}}
{{- end -}}
resources:
  {{- toYaml $resources | nindent 2 }}
{{- end -}}

{{/* One probe's handler and period:
     (dict "root" $ "port" 50061 "asked" "full.service.Name or empty" "period" 10) */}}
{{- define "podium.probe" -}}
{{- if .root.Values.probes.exec }}
exec:
  command: [python, -m, podium.probe, "127.0.0.1:{{ .port }}"{{ with .asked }}, {{ . }}{{ end }}]
{{- else }}
grpc:
  port: {{ .port }}
  {{- with .asked }}
  service: {{ . }}
  {{- end }}
{{- end }}
timeoutSeconds: {{ .root.Values.probes.timeoutSeconds }}
periodSeconds: {{ .period }}
{{- end -}}

{{/* Probes, ports and the end of a container: liveness asks for the process, readiness for its service.
     Of a job's own trainer's machines only the first has ports: the others would be killed for their silence.
     `ports` where they are not the service's own. */}}
{{- define "podium.lifecycle" -}}
{{- $ports := get (include "podium.ports" . | fromYaml) (default .service .ports) -}}
{{- $health := int $ports.health -}}
{{- $probes := .root.Values.probes -}}
{{- $alone := and (eq .service "trainer") (not .ports) -}}
ports:
  {{- range $name, $port := $ports }}
  - name: {{ $name }}
    containerPort: {{ $port }}
  {{- end }}
{{- if not $alone }}
startupProbe:
  {{- include "podium.probe" (dict "root" .root "port" $health "asked" "" "period" $probes.startupPeriodSeconds) | nindent 2 }}
  failureThreshold: {{ div (add .startupSeconds $probes.startupPeriodSeconds -1) $probes.startupPeriodSeconds }}
livenessProbe:
  {{- include "podium.probe" (dict "root" .root "port" $health "asked" "" "period" $probes.livenessPeriodSeconds) | nindent 2 }}
  failureThreshold: 6
{{- end }}
readinessProbe:
  {{- include "podium.probe" (dict "root" .root "port" $health "asked" (include "podium.grpcServiceOf" (dict "service" (default .service .ports))) "period" $probes.periodSeconds) | nindent 2 }}
  failureThreshold: 2
{{- if not $alone }}
lifecycle:
  preStop:
    # Clients look names up again while the pod still answers.
    exec:
      command: [sleep, "5"]
{{- end }}
{{- end -}}

{{- define "podium.grpcServiceOf" -}}
{{- get (dict "controller" "podium.jobs.v1.JobService" "registry" "podium.registry.v1.RegistryService" "inference" "podium.inference.v1.InferenceService" "rollout" "podium.rollout.v1.RolloutService" "judge" "podium.judge.v1.JudgeService" "trainer" "podium.trainer.v1.TrainerService" "trainers" "podium.trainer.v1.TrainerService") .service -}}
{{- end -}}

{{/* The pause of preStop, the drain, and what run_service allows after it. */}}
{{- define "podium.graceSeconds" -}}
{{- add .Values.drainSeconds 20 -}}
{{- end -}}

{{/* Variables, of each name the last value alone, for server-side apply refuses a name that stands there twice. It stands
     where the first did, as others may be made of it, or, made of others itself, where the last did. A list of lists. */}}
{{- define "podium.variables" -}}
{{- $values := dict -}}
{{- $names := list -}}
{{- range . -}}
{{- range default list . -}}
{{- if contains "$(" (toString (default "" .value)) }}{{ $names = without $names .name }}{{ end -}}
{{- if not (has .name $names) }}{{ $names = append $names .name }}{{ end -}}
{{- $_ := set $values .name . -}}
{{- end -}}
{{- end -}}
{{- $kept := list -}}
{{- range $names }}{{ $kept = append $kept (get $values .) }}{{ end -}}
{{- toYaml $kept -}}
{{- end -}}

{{/* A service's variables: its settings, `variables` of its template, then extraEnv of all, then its own. */}}
{{- define "podium.env" -}}
{{- include "podium.variables" (list (include "podium.settingsEnv" . | fromYamlArray) .variables .root.Values.extraEnv .values.extraEnv) -}}
{{- end -}}

{{/* The service's settings as variables: what all have, then `own` (a dict), then values.settings,
     each winning over the one before. */}}
{{- define "podium.settingsEnv" -}}
{{- $settings := dict "HOST" .root.Values.listenAddress "DRAIN_SECONDS" .root.Values.drainSeconds "LOG_LEVEL" .root.Values.log.level "LOG_FORMAT" .root.Values.log.format -}}
{{- /* The console has no token of its own: who looks at its pages presents theirs. */ -}}
{{- if and .root.Values.auth.enabled (ne .service "console") -}}
{{- $settings = merge $settings (dict "AUTH_TOKENS_FILE" "/etc/podium/auth/tokens" "TOKEN_FILE" "/etc/podium/auth/token") -}}
{{- if eq .service "inference" -}}
{{- $settings = set $settings "API_KEYS_FILE" "/etc/podium/auth/api-key" -}}
{{- end -}}
{{- /* A judge that asks others' models shows them nothing of this installation's. */ -}}
{{- if and (eq .service "judge") (not .root.Values.judge.baseUrl) -}}
{{- $settings = set $settings "KEY_FILE" "/etc/podium/auth/token" -}}
{{- end -}}
{{- end -}}
{{- if .root.Values.tls.existingSecret -}}
{{- $settings = merge $settings (dict "TLS_CERTIFICATE_FILE" "/etc/podium/tls/tls.crt" "TLS_KEY_FILE" "/etc/podium/tls/tls.key" "TLS_AUTHORITIES_FILE" "/etc/podium/tls/ca.crt") -}}
{{- end -}}
{{- $settings = mergeOverwrite $settings (deepCopy (default dict .own)) (deepCopy (default dict .values.settings)) -}}
{{- range $name, $value := $settings }}
- {name: PODIUM_{{ upper $.service }}_{{ $name }}, value: {{ kindIs "string" $value | ternary $value (toJson $value) | quote }}}
{{- end }}
{{- if .root.Values.tracing.otlpEndpoint }}
{{- include "podium.tracingEnv" . }}
{{- end }}
{{- end -}}

{{/* A variable with a database's URL, as a list: (list root "controller") */}}
{{- define "podium.databaseEnv" -}}
- name: PODIUM_{{ index . 1 | upper }}_DATABASE_URL
  valueFrom:
    secretKeyRef: {name: {{ include "podium.databaseSecret" (index . 0) | quote }}, key: {{ index . 1 }}-url}
{{- end -}}

{{/* OpenTelemetry's variables, but for those that extraEnv sets. */}}
{{- define "podium.tracingEnv" -}}
{{- $tracing := .root.Values.tracing -}}
{{- $taken := list -}}
{{- range concat (default list .root.Values.extraEnv) (default list .values.extraEnv) }}{{ $taken = append $taken .name }}{{ end -}}
{{- $variables := dict "OTEL_EXPORTER_OTLP_ENDPOINT" $tracing.otlpEndpoint -}}
{{- if ne $tracing.otlpProtocol "grpc" -}}
{{- $variables = set $variables "OTEL_EXPORTER_OTLP_PROTOCOL" $tracing.otlpProtocol -}}
{{- end -}}
{{- if lt (float64 $tracing.sampleRatio) 1.0 -}}
{{- $variables = merge $variables (dict "OTEL_TRACES_SAMPLER" "parentbased_traceidratio" "OTEL_TRACES_SAMPLER_ARG" (toString $tracing.sampleRatio)) -}}
{{- end -}}
{{- /* Only rollouts have conversations to tell. */ -}}
{{- if and $tracing.captureContent (eq .service "rollout") -}}
{{- $variables = set $variables "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT" "true" -}}
{{- end -}}
{{- range $name, $value := $variables }}
{{- if not (has $name $taken) }}
- {name: {{ $name }}, value: {{ $value | quote }}}
{{- end }}
{{- end }}
{{- if and $tracing.existingSecret (not (has "OTEL_EXPORTER_OTLP_HEADERS" $taken)) }}
- name: OTEL_EXPORTER_OTLP_HEADERS
  valueFrom:
    secretKeyRef: {name: {{ $tracing.existingSecret }}, key: headers}
{{- end }}
{{- if not (has "OTEL_RESOURCE_ATTRIBUTES" $taken) }}
{{- range $name, $path := dict "POD" "metadata.name" "NAMESPACE" "metadata.namespace" "NODE" "spec.nodeName" }}
- name: K8S_{{ $name }}
  valueFrom:
    fieldRef: {fieldPath: {{ $path }}}
{{- end }}
{{- $attributes := dict "k8s.pod.name" "$(K8S_POD)" "k8s.namespace.name" "$(K8S_NAMESPACE)" "k8s.node.name" "$(K8S_NODE)" "k8s.container.name" .service "service.namespace" (include "podium.fullname" .root) -}}
{{- $attributes = mergeOverwrite $attributes (deepCopy $tracing.resourceAttributes) -}}
{{- $pairs := list -}}
{{- range $name, $value := $attributes }}{{ $pairs = append $pairs (printf "%s=%s" $name $value) }}{{ end }}
- {name: OTEL_RESOURCE_ATTRIBUTES, value: {{ join "," $pairs | quote }}}
{{- end }}
{{- end -}}

{{- define "podium.commonMounts" -}}
- {name: tmp, mountPath: /tmp}
{{- if and .root.Values.auth.enabled (ne (default "" .service) "console") }}
- {name: auth, mountPath: /etc/podium/auth, readOnly: true}
{{- end }}
{{- if .root.Values.tls.existingSecret }}
- {name: tls, mountPath: /etc/podium/tls, readOnly: true}
{{- end }}
{{- include "podium.theirMounts" . }}
{{- end -}}

{{/* Volumes that the values give every container of a pod. */}}
{{- define "podium.theirMounts" -}}
{{- with (include "podium.podValues" . | fromJson).volumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "podium.theirVolumes" -}}
{{- with (include "podium.podValues" . | fromJson).volumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* The certificate, for what calls and is called. */}}
{{- define "podium.tlsVolume" -}}
{{- with .Values.tls.existingSecret }}
- name: tls
  secret:
    secretName: {{ . }}
    defaultMode: 0440
{{- end }}
{{- end -}}

{{/* /tmp, its size where the caller gives `scratch`, and the tokens. */}}
{{- define "podium.commonVolumes" -}}
- name: tmp
  emptyDir:
    sizeLimit: {{ default "1Gi" .scratch }}
{{- if and .root.Values.auth.enabled (ne (default "" .service) "console") }}
- name: auth
  secret:
    secretName: {{ include "podium.authSecret" .root }}
    defaultMode: 0440
{{- end }}
{{- include "podium.tlsVolume" .root }}
{{- include "podium.theirVolumes" . }}
{{- end -}}

{{/* The first keys of a container. */}}
{{- define "podium.container" -}}
- name: {{ .service }}
  image: {{ include "podium.image" (list .root (default .service .image) (default "" .values.tagSuffix)) }}
  imagePullPolicy: {{ .root.Values.image.pullPolicy }}
  {{- include "podium.containerSecurity" . | nindent 2 }}
  {{- include "podium.resources" (list .root .values.resources (default 0 .values.gpus)) | nindent 2 }}
  {{- include "podium.lifecycle" . | nindent 2 }}
{{- end -}}
