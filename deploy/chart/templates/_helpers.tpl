{{- define "portolan.selector" -}}
app.kubernetes.io/name: portolan
{{- end }}

{{- define "portolan.labels" -}}
{{ include "portolan.selector" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "portolan.image" -}}
{{ .Values.image.repository }}
{{- if .Values.image.digest }}@{{ .Values.image.digest }}
{{- else }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}
{{- end }}

{{- /* The port of an address, given as (list ADDRESS DEFAULT). */ -}}
{{- define "portolan.port" -}}
{{ regexFind "[0-9]+$" (index . 0 | default (index . 1)) }}
{{- end }}

{{- define "portolan.config" -}}
{{- $own := dict
  "apiVersion" "kubeproxy.config.k8s.io/v1alpha1"
  "kind" "KubeProxyConfiguration"
  "clientConnection" (dict "kubeconfig" "/etc/portolan/kubeconfig.conf") -}}
{{ toYaml (merge $own .Values.config) }}
{{- if .Values.options }}
---
{{ toYaml (merge (dict "apiVersion" "portolan.io/v1alpha1" "kind" "ProxyOptions") .Values.options) }}
{{- end }}
{{- end }}

{{- define "portolan.kubeconfig" -}}
apiVersion: v1
kind: Config
clusters:
- name: cluster
  cluster:
    server: {{ required "apiServer: name the API server's address, https://HOST:PORT, that works before Services do (not the ClusterIP of the Service \"kubernetes\")" .Values.apiServer }}
    certificate-authority: /var/run/secrets/kubernetes.io/serviceaccount/ca.crt
users:
- name: portolan
  user:
    tokenFile: /var/run/secrets/kubernetes.io/serviceaccount/token
contexts:
- name: portolan
  context: {cluster: cluster, user: portolan}
current-context: portolan
{{- end }}
