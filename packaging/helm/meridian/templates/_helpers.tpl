{{- define "meridian.fullname" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "meridian.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "meridian.labels" -}}
{{ include "meridian.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "meridian.secret" -}}
{{- .Values.auth.existingSecret | default (printf "%s-auth" (include "meridian.fullname" .)) -}}
{{- end -}}

{{/* The file that every node reads. A node has the name of its pod, and is found under it. */}}
{{- define "meridian.config" -}}
[cluster]
id = {{ .Values.cluster.id | quote }}
secret_file = "secret/cluster"
{{- $root := . }}
{{- $fullname := include "meridian.fullname" . }}
{{- range $region := .Values.regions }}
{{- range $ordinal := until (int $region.nodes) }}
{{- $name := printf "%s-%s-%d" $fullname $region.name $ordinal }}
{{- $host := printf "%s.%s-nodes.%s.svc.%s" $name $fullname $root.Release.Namespace $root.Values.cluster.domain }}

[[node]]
name = {{ $name | quote }}
region = {{ $region.name | quote }}
client = "{{ $host }}:7001"
peer = "{{ $host }}:7101"
admin = "{{ $host }}:9100"
data = "/var/lib/meridian/{{ $name }}"
{{- end }}
{{- end }}
{{- range $keyspace := .Values.keyspaces }}

[[keyspace]]
{{- range $name, $value := $keyspace }}
{{ $name }} = {{ if kindIs "string" $value }}{{ $value | quote }}{{ else }}{{ int64 $value }}{{ end }}
{{- end }}
{{- end }}

[[user]]
name = "default"
rules = "on ~* +@all"
password_file = "secret/password"
{{- if .Values.tls.secret }}

[tls]
certificate = "tls/tls.crt"
key = "tls/tls.key"
ca = "tls/ca.crt"
{{- end }}

{{ .Values.config }}
{{- end -}}
