{{/* The name of all objects: the release's, followed by the chart's unless the release's contains it. */}}
{{- define "lmqcluster.name" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "lmqcluster.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "lmqcluster.labels" -}}
{{ include "lmqcluster.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{/* Labels of the pods that write backups. They are not those of the nodes, to which the services lead. */}}
{{- define "lmqcluster.backup" -}}
app.kubernetes.io/name: {{ .Chart.Name }}-backup
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "lmqcluster.headless" -}}
{{ include "lmqcluster.name" . }}-nodes
{{- end -}}

{{/* The part of a pod's DNS name after the pod's name. */}}
{{- define "lmqcluster.domain" -}}
{{ include "lmqcluster.headless" . }}.{{ .Release.Namespace }}.svc.{{ .Values.clusterDomain }}
{{- end -}}

{{- define "lmqcluster.secret" -}}
{{ .Values.secrets.existingSecret | default (printf "%s-secrets" (include "lmqcluster.name" .)) }}
{{- end -}}

{{/* Raft addresses of the founding members. */}}
{{- define "lmqcluster.peers" -}}
{{- $peers := list -}}
{{- range $number := until (int .Values.foundingNodes) -}}
{{- $peers = append $peers (printf "%s-%d.%s:19980" (include "lmqcluster.name" $) $number (include "lmqcluster.domain" $)) -}}
{{- end -}}
{{- join "," $peers -}}
{{- end -}}

{{- define "lmqcluster.scheme" -}}
{{ .Values.tls.enabled | ternary "HTTPS" "HTTP" }}
{{- end -}}

{{/* Prometheus' access to a page of a node. */}}
{{- define "lmqcluster.scrape" -}}
port: http
scheme: {{ include "lmqcluster.scheme" . | lower }}
{{- if .Values.tls.enabled }}
tlsConfig:
  # Prometheus dials pods by address, which a certificate does not contain.
  serverName: {{ printf "%s.%s.svc" (include "lmqcluster.name" .) .Release.Namespace }}
  ca:
    secret:
      name: {{ .Values.tls.secretName }}
      key: ca.crt
{{- end }}
authorization:
  credentials:
    name: {{ .Values.serviceMonitor.tokenSecret.name | default (include "lmqcluster.secret" .) }}
    key: {{ .Values.serviceMonitor.tokenSecret.key | default "admin-token" }}
{{- end -}}
