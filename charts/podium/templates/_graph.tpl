{{/* Who calls whom, and on which port: the call graph of docs/architecture.md. NetworkPolicies are made
     of it alone. */}}
{{- define "podium.graph" -}}
controller:
  - {service: registry, port: grpc}
  - {service: inference, port: grpc}
  - {service: rollout, port: grpc}
  - {service: judge, port: grpc}
  - {service: trainer, port: grpc}
  - {service: trainers, port: grpc}
  - {service: postgresql, port: sql}
registry:
  - {service: postgresql, port: sql}
inference:
  - {service: registry, port: grpc}
  # The pods of a pool among themselves.
  - {service: inference, port: grpc}
rollout:
  - {service: inference, port: grpc}
  - {service: environment, port: grpc}
judge:
  - {service: inference, port: http}
trainer:
  - {service: registry, port: grpc}
  # A job's machines among themselves, on ports that torchrun, gloo and NCCL choose.
  - {service: trainer, port: every}
trainers:
  - {service: registry, port: grpc}
gitops:
  - {service: controller, port: grpc}
tracking:
  - {service: controller, port: grpc}
console:
  - {service: controller, port: grpc}
  - {service: registry, port: grpc}
  - {service: inference, port: grpc}
  - {service: rollout, port: grpc}
test:
  - {service: controller, port: grpc}
  - {service: registry, port: grpc}
{{- end -}}

{{/* What networkPolicy.clients may call. */}}
{{- define "podium.clientPorts" -}}
controller: [grpc]
registry: [grpc]
inference: [grpc, http]
rollout: [grpc]
console: [http]
{{- end -}}

{{/* The pods of a service, as a podSelector: (list root service) */}}
{{- define "podium.podsOf" -}}
{{- $root := index . 0 -}}
matchLabels:
  app.kubernetes.io/name: {{ include "podium.name" $root | quote }}
  app.kubernetes.io/instance: {{ $root.Release.Name | quote }}
matchExpressions:
  - key: app.kubernetes.io/component
    operator: In
    values:
      {{- if has (index . 1) (list "inference" "nodes") }}
      {{- range $root.Values.pools }}
      - {{ index $ 1 }}-{{ .name }}
      {{- end }}
      {{- else if eq (index . 1) "trainers" }}
      {{- range $root.Values.trainerPools }}
      - trainers-{{ .name }}
      {{- end }}
      {{- else }}
      - {{ index . 1 }}
      {{- end }}
{{- end -}}
