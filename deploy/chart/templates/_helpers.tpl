{{/* The labels of every object. */}}
{{- define "ccm.labels" -}}
{{ include "ccm.selector" . }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "ccm.selector" -}}
app.kubernetes.io/name: {{ include "ccm.name" . }}
{{- end }}

{{/* The name of every object of this release, and what names in the whole cluster begin with. */}}
{{- define "ccm.name" -}}
{{ default "ccm-supervisor" .Values.nameOverride }}
{{- end }}

{{- define "ccm.account" -}}
{{ default (include "ccm.name" .) .Values.serviceAccount.name }}
{{- end }}

{{/* The Secret with the file of the flag cloud-config. */}}
{{- define "ccm.configSecret" -}}
{{ ternary (printf "%s-cloud-config" (include "ccm.name" .)) .Values.cloudConfigSecret (not (empty .Values.cloudConfig)) }}
{{- end }}

{{/* Metadata of an object in the release's namespace: (list $ labels). */}}
{{- define "ccm.metadata" -}}
{{- $root := first . -}}
name: {{ include "ccm.name" $root }}
namespace: {{ $root.Release.Namespace }}
labels:
  {{- include "ccm.labels" $root | nindent 2 }}
  {{- with last . }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

{{/* What Prometheus reads of a Pod, by a PodMonitor or a ServiceMonitor: (list $ "podMonitor"). */}}
{{- define "ccm.scrapes" -}}
{{- $root := first . }}{{ $name := last . }}
{{- $monitor := get $root.Values $name }}
{{- if and $monitor.bearerTokenSecret (not $monitor.tlsConfig) (hasKey $root.Values.flags "tls-cert-file") }}
{{- fail (printf "%s.tlsConfig: the token would go to who answers, although the flag tls-cert-file gives a certificate; give its ca and a serverName, or insecureSkipVerify: true" $name) }}
{{- end }}
{{- range list "/metrics" "/metrics/slis" }}
- port: https
  path: {{ . }}
  scheme: https
  interval: {{ $monitor.interval }}
  tlsConfig: {{- default (dict "insecureSkipVerify" true) $monitor.tlsConfig | toYaml | nindent 4 }}
  {{- with $monitor.bearerTokenSecret }}
  bearerTokenSecret: {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}
{{- end }}

{{/* A value of a flag as text: numbers in full, a list with commas. */}}
{{- define "ccm.text" -}}
{{- if kindIs "slice" . }}{{ join "," . }}{{ else if kindIs "float64" . }}{{ toJson . }}{{ else }}{{ . }}{{ end }}
{{- end }}

{{/* The value of a flag, or its default: (list $ "name"). */}}
{{- define "ccm.flag" -}}
{{- $root := first . }}{{ $name := last . }}
{{- if hasKey $root.Values.flags $name }}{{ include "ccm.text" (get $root.Values.flags $name) }}
{{- else }}{{ get ($root.Files.Get "rights.yaml" | fromYaml).defaults $name }}
{{- end }}
{{- end }}

{{/* Whether a controller runs, by the rules of `--controllers`: (list $ controller). */}}
{{- define "ccm.isEnabled" -}}
{{- $root := first . }}{{ $one := last . }}
{{- $items := splitList "," (include "ccm.flag" (list $root "controllers")) }}
{{- $said := "" }}
{{- range $items }}
{{- if and (not $said) (has (trimPrefix "-" (trim .)) $one.names) }}
{{- $said = ternary "no" "yes" (hasPrefix "-" (trim .)) }}
{{- end }}
{{- end }}
{{- $isOurs := or (not $one.provider) (eq $one.provider (include "ccm.flag" (list $root "cloud-provider"))) }}
{{- $byStar := and (has "*" $items) (or (not $one.provider) $one.byStar) }}
{{- if and $isOurs (or (eq $said "yes") (and (not $said) $byStar)) }}yes{{ end }}
{{- end }}

{{/* Whether a worker's account is there and not of this release, as upstream's controllers make it, too: (list $ "name"). */}}
{{- define "ccm.isOthers" -}}
{{- $release := (first .).Release }}
{{- with lookup "v1" "ServiceAccount" "kube-system" (last .) }}
{{- $of := .metadata.annotations | default dict }}
{{- if or (ne $release.Name (get $of "meta.helm.sh/release-name")) (ne $release.Namespace (get $of "meta.helm.sh/release-namespace")) }}yes{{ end }}
{{- end }}
{{- end }}

{{/* A role in a namespace, or in the whole cluster, and who has it:
     (dict "root" $ "name" … "namespace" … "rules" … "account" … "accountNamespace" …). */}}
{{- define "ccm.role" -}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ ternary "Role" "ClusterRole" (not (empty .namespace)) }}
metadata:
  name: {{ .name }}
  {{- with .namespace }}
  namespace: {{ . }}
  {{- end }}
  labels: {{- include "ccm.labels" .root | nindent 4 }}
rules: {{- toYaml .rules | nindent 2 }}
{{ include "ccm.binding" (merge (dict "role" .name "roleKind" (ternary "Role" "ClusterRole" (not (empty .namespace)))) .) }}
{{- end }}

{{- define "ccm.binding" -}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ ternary "RoleBinding" "ClusterRoleBinding" (not (empty .namespace)) }}
metadata:
  name: {{ .name }}
  {{- with .namespace }}
  namespace: {{ . }}
  {{- end }}
  labels: {{- include "ccm.labels" .root | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ .roleKind }}
  name: {{ .role }}
subjects:
  - kind: ServiceAccount
    name: {{ .account }}
    namespace: {{ .accountNamespace }}
{{ end }}
