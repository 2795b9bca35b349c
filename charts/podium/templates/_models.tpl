{{/* Base models: downloaded by init containers, then read without any network. */}}

{{/* One init container a model: (dict "root" "service" "values" "models" (list of pools)) */}}
{{- define "podium.modelDownloads" -}}
{{- range .models }}
- name: model-{{ .name }}
  image: {{ include "podium.image" (list $.root $.service $.values.tagSuffix) }}
  imagePullPolicy: {{ $.root.Values.image.pullPolicy }}
  command: [python, -m, podium.local.models.prepare, {{ .model | quote }}{{ with .revision }}, --revision, {{ . | quote }}{{ end }}]
  {{- include "podium.containerSecurity" $ | nindent 2 }}
  resources:
    {{- toYaml $.root.Values.modelCache.resources | nindent 4 }}
  env:
    {{- $own := list (dict "name" "PODIUM_MODELS_DIR" "value" "/models") (dict "name" "HF_HUB_OFFLINE" "value" "0") }}
    {{- include "podium.variables" (list $own $.root.Values.extraEnv $.root.Values.modelCache.extraEnv) | nindent 4 }}
  {{- with $.root.Values.modelCache.existingSecret }}
  envFrom:
    - secretRef: {name: {{ . }}}
  {{- end }}
  volumeMounts:
    - {name: tmp, mountPath: /tmp}
    - {name: models, mountPath: /models}
    {{- include "podium.theirMounts" $ | nindent 4 }}
{{- end }}
{{- end -}}

{{/* /dev/shm and the cache: (dict "root" "values") */}}
{{- define "podium.modelVolumes" -}}
- name: shm
  emptyDir:
    medium: Memory
    sizeLimit: {{ .values.sharedMemory }}
- name: models
  {{- with .root.Values.modelCache }}
  {{- if (.persistence).enabled }}
  persistentVolumeClaim:
    claimName: {{ default (include "podium.componentName" (list $.root "models")) .persistence.existingClaim }}
  {{- else }}
  emptyDir:
    sizeLimit: {{ .scratch }}
  {{- end }}
  {{- end }}
{{- end -}}

{{/* Where a pool's model is, and which of its revisions is meant; as a list of variables. */}}
{{- define "podium.modelEnv" -}}
- {name: PODIUM_MODELS_DIR, value: /models}
{{- with .revision }}
- {name: PODIUM_MODEL_REVISION, value: {{ . | quote }}}
{{- end }}
{{- end -}}

{{- define "podium.modelMounts" -}}
- {name: shm, mountPath: /dev/shm}
- {name: models, mountPath: /models, readOnly: true}
{{- end -}}
