{{/* The Job that the controller makes trainers from; it adds what is the job's own: nodes, GPUs, queue. */}}
{{- define "podium.trainerJob" -}}
{{- $own := dict "REGISTRY_ADDRESS" (include "podium.address" (list . "registry" "registry")) }}
{{- $pools := (include "podium.pools" . | fromJson).pools }}
{{- $c := dict "root" . "component" "trainer" "service" "trainer" "values" .Values.trainer "own" $own "scratch" .Values.trainer.scratch "models" $pools -}}
apiVersion: batch/v1
kind: Job
metadata:
  {{- include "podium.metadata" (list . "trainer") | nindent 2 }}
spec:
  backoffLimit: {{ .Values.trainer.restarts }}
  template:
    metadata:
      {{- include "podium.podMetadata" $c | nindent 6 }}
    spec:
      {{- include "podium.podSecurity" $c | nindent 6 }}
      restartPolicy: Never
      terminationGracePeriodSeconds: {{ include "podium.graceSeconds" . }}
      {{- include "podium.placement" $c | nindent 6 }}
      initContainers:
        {{- include "podium.modelDownloads" $c | nindent 8 }}
      containers:
        {{- include "podium.container" $c | nindent 8 }}
          env:
            {{- include "podium.env" $c | nindent 12 }}
            - {name: PODIUM_MODELS_DIR, value: /models}
          volumeMounts:
            {{- include "podium.commonMounts" $c | nindent 12 }}
            {{- include "podium.modelMounts" $c | nindent 12 }}
      volumes:
        {{- include "podium.commonVolumes" $c | nindent 8 }}
        {{- include "podium.modelVolumes" $c | nindent 8 }}
{{- end -}}
