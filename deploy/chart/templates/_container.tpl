{{- define "ccm.container" -}}
{{- $config := include "ccm.flag" (list . "cloud-config") }}
{{- $port := include "ccm.flag" (list . "secure-port") }}
name: ccm-supervisor
{{- if .Values.image.digest }}
image: {{ printf "%s@%s" .Values.image.repository .Values.image.digest }}
{{- else }}
image: {{ printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) }}
{{- end }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
command: [ccm-supervisor, start]
args:
  {{- range $name, $value := .Values.flags }}
  {{- range ternary $value (list $value) (kindIs "slice" $value) }}
  - {{ printf "--%s=%s" $name (include "ccm.text" .) | quote }}
  {{- end }}
  {{- end }}
env:
  {{- range list "XDG_RUNTIME_DIR" "HOME" "TMPDIR" }}
  - name: {{ . }}
    value: /run/ccm
  {{- end }}
  {{- with .Values.env }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with .Values.envFrom }}
envFrom: {{- toYaml . | nindent 2 }}
{{- end }}
{{- if ne $port "0" }}
ports:
  - name: https
    containerPort: {{ $port }}
livenessProbe:
  httpGet: {{- include "ccm.probe" (list . "/livez" $port) | nindent 4 }}
  {{- toYaml .Values.livenessProbe | nindent 2 }}
readinessProbe:
  httpGet: {{- include "ccm.probe" (list . "/readyz" $port) | nindent 4 }}
  {{- toYaml .Values.readinessProbe | nindent 2 }}
{{- end }}
resources: {{- toYaml .Values.resources | nindent 2 }}
securityContext: {{- toYaml .Values.securityContext | nindent 2 }}
volumeMounts:
  - name: run
    mountPath: /run/ccm
  {{- if $config }}
  - name: cloud-config
    mountPath: {{ dir $config }}
    readOnly: true
  {{- end }}
  {{- range .Values.secretFiles }}
  - name: secret-{{ .secretName }}
    mountPath: {{ .mountPath }}
    readOnly: true
  {{- end }}
  {{- with .Values.extraVolumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

{{- define "ccm.probe" -}}
{{- $address := include "ccm.flag" (list (first .) "bind-address") }}
{{- if not (has $address (list "0.0.0.0" "::")) }}
host: {{ $address | quote }}
{{- end }}
path: {{ index . 1 }}
port: {{ last . }}
scheme: HTTPS
{{- end }}
