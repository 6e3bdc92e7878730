{{- define "fs.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}
{{- else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "fs.selector" -}}
app.kubernetes.io/name: {{ .root.Chart.Name }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .role }}
{{- with .registry }}
registry: {{ . | quote }}
{{- end }}
{{- end }}

{{- define "fs.labels" -}}
{{ include "fs.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end }}

{{- define "fs.scheme" -}}
{{ if .Values.tls.existingSecret }}https{{ else }}http{{ end }}
{{- end }}

{{- /* The host name of each pod of a role, which its headless service makes. */}}
{{- define "fs.domain" -}}
{{ include "fs.name" .root }}-{{ .role }}.{{ .root.Release.Namespace }}.svc.{{ .root.Values.clusterDomain }}
{{- end }}

{{- /* The StatefulSet of a registry's masters. */}}
{{- define "fs.master" -}}
{{ include "fs.name" .root }}-master{{ with .registry }}-{{ . }}{{ end }}
{{- end }}

{{- /* The masters, as clients are given them; `named`: as masters and workers are, each registry with its name. */}}
{{- define "fs.masters" -}}
{{- $pods := list }}
{{- range $registry := .root.Values.master.registries | default (list "") }}
{{- $of := dict "root" $.root "role" "master" "registry" $registry }}
{{- range $i := until (int $.root.Values.master.replicas) }}
{{- $name := "" }}
{{- if and $.named $registry (eq $i 0) }}
{{- $name = printf "%s=" $registry }}
{{- end }}
{{- $pods = append $pods (printf "%s%s-%d.%s:9110" $name (include "fs.master" $of) $i (include "fs.domain" $of)) }}
{{- end }}
{{- end }}
{{- join "," $pods }}
{{- end }}

{{- /* What both roles' pods have in common; `args` and `env` come before it. */}}
{{- define "fs.container" -}}
{{- $values := index .root.Values .role -}}
image: {{ printf "%s:%s" .root.Values.image.repository (.root.Values.image.tag | default .root.Chart.AppVersion) | quote }}
imagePullPolicy: {{ .root.Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
env:
  - {name: POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
  - {name: FLIGHT_SHUFFLE_DATA_DIR, value: /data}
  - {name: FLIGHT_SHUFFLE_ADVERTISE, value: "$(POD_NAME).{{ include "fs.domain" . }}"}
  - {name: FLIGHT_SHUFFLE_HTTP_LISTEN, value: "0.0.0.0:9112"}
  - {name: FLIGHT_SHUFFLE_LOG_FORMAT, value: json}
{{- if .root.Values.auth.existingSecret }}
  - {name: FLIGHT_SHUFFLE_SECRET_FILE, value: /etc/flight-shuffle/auth/secret}
{{- end }}
{{- if .root.Values.tls.existingSecret }}
  - {name: FLIGHT_SHUFFLE_TLS_CERT, value: /etc/flight-shuffle/tls/tls.crt}
  - {name: FLIGHT_SHUFFLE_TLS_KEY, value: /etc/flight-shuffle/tls/tls.key}
  - {name: FLIGHT_SHUFFLE_TLS_CA, value: /etc/flight-shuffle/tls/ca.crt}
{{- end }}
{{- range $name, $value := $values.options }}
  - {name: {{ $name }}, value: {{ $value | quote }}}
{{- end }}
{{- with .env }}
{{ . | trim | indent 2 }}
{{- end }}
ports:
{{- if eq .role "master" }}
  - {name: control, containerPort: 9110}
{{- else }}
  - {name: data, containerPort: 9111}
{{- end }}
  - {name: http, containerPort: 9112}
# A start reads the journal and the end of each map output's file. A standby is ready.
startupProbe:
  httpGet: {path: /ready, port: http, scheme: {{ include "fs.scheme" .root | upper }}}
  periodSeconds: 5
  timeoutSeconds: 6
  failureThreshold: 120
readinessProbe:
  httpGet: {path: /ready, port: http, scheme: {{ include "fs.scheme" .root | upper }}}
  periodSeconds: 5
  timeoutSeconds: 6
livenessProbe:
  httpGet: {path: /health, port: http, scheme: {{ include "fs.scheme" .root | upper }}}
  periodSeconds: 10
  timeoutSeconds: 6
  failureThreshold: 6
resources:
  {{- toYaml $values.resources | nindent 2 }}
volumeMounts:
  - {name: data, mountPath: /data}
  - {name: tmp, mountPath: /tmp}
{{- if .root.Values.auth.existingSecret }}
  - {name: auth, mountPath: /etc/flight-shuffle/auth, readOnly: true}
{{- end }}
{{- if .root.Values.tls.existingSecret }}
  - {name: tls, mountPath: /etc/flight-shuffle/tls, readOnly: true}
{{- end }}
{{- end }}

{{- define "fs.pod" -}}
{{- $values := index .root.Values .role -}}
serviceAccountName: {{ include "fs.name" .root }}
automountServiceAccountToken: false
enableServiceLinks: false
securityContext:
  {{- toYaml .root.Values.podSecurityContext | nindent 2 }}
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "fs.selector" . | nindent 8 }}
volumes:
  - {name: tmp, emptyDir: {}}
{{- with .root.Values.auth.existingSecret }}
  - name: auth
    secret: {secretName: {{ . }}, defaultMode: 0440}
{{- end }}
{{- with .root.Values.tls.existingSecret }}
  - name: tls
    secret: {secretName: {{ . }}, defaultMode: 0440}
{{- end }}
{{- end }}

{{- define "fs.claim" -}}
{{- $values := index .root.Values .role -}}
- metadata:
    name: data
  spec:
    accessModes: [ReadWriteOnce]
    {{- with $values.storage.storageClass }}
    storageClassName: {{ . }}
    {{- end }}
    resources:
      requests: {storage: {{ $values.storage.size }}}
{{- end }}
