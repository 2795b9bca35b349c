{{/* The Deployment that the controller makes environments from; it adds image, replicas and name. */}}
{{- define "podium.environmentDeployment" -}}
{{- $c := dict "root" . "component" "environment" "service" "environment" "values" .Values.environments "scratch" .Values.environments.scratch -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  {{- include "podium.metadata" (list . "environment") | nindent 2 }}
spec:
  template:
    metadata:
      {{- include "podium.podMetadata" $c | nindent 6 }}
    spec:
      {{- include "podium.podSecurity" $c | nindent 6 }}
      {{- include "podium.placement" $c | nindent 6 }}
      containers:
        - name: environment
          imagePullPolicy: {{ .Values.image.pullPolicy }}
          {{- include "podium.containerSecurity" $c | nindent 10 }}
          resources:
            {{- toYaml .Values.environments.resources | nindent 12 }}
          ports:
            - {name: grpc, containerPort: {{ (get (include "podium.ports" . | fromYaml) "environment").grpc | int }}}
          {{- if not .Values.probes.exec }}
          readinessProbe:
            tcpSocket: {port: grpc}
            periodSeconds: {{ .Values.probes.periodSeconds }}
            timeoutSeconds: {{ .Values.probes.timeoutSeconds }}
          {{- end }}
          {{- if or .Values.extraEnv .Values.environments.extraEnv }}
          env:
            {{- include "podium.variables" (list .Values.extraEnv .Values.environments.extraEnv) | nindent 12 }}
          {{- end }}
          volumeMounts:
            - {name: tmp, mountPath: /tmp}
            {{- include "podium.theirMounts" $c | nindent 12 }}
      volumes:
        - name: tmp
          emptyDir:
            sizeLimit: {{ .Values.environments.scratch }}
        {{- include "podium.theirVolumes" $c | nindent 8 }}
{{- end -}}
