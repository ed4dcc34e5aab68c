{{- define "allot.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- /* The release's objects are called after it. */ -}}
{{- define "allot.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains (include "allot.name" .) .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "allot.name" .) | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "allot.image" -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) -}}
{{- end -}}
{{- end -}}

{{- /* Where browsers find the dashboard: where values say, or through `kubectl proxy`. */ -}}
{{- define "allot.dashboardURL" -}}
{{- $service := printf "https:%s-dashboard:%v" (include "allot.fullname" .) .Values.dashboard.port -}}
{{- $proxied := printf "http://127.0.0.1:8001/api/v1/namespaces/%s/services/%s/proxy/" .Release.Namespace $service -}}
{{- default $proxied .Values.dashboard.url -}}
{{- end -}}

{{- /* What follows takes a dictionary: root, the context of the chart; part, what is installed and removed as one; component, a workload. */ -}}

{{- define "allot.component" -}}
{{- printf "%s-%s" (include "allot.fullname" .root) .component -}}
{{- end -}}

{{- /* Of objects without a namespace: two releases do not clash. */ -}}
{{- define "allot.clusterwide" -}}
{{- printf "%s.%s" (include "allot.component" .) .root.Release.Namespace -}}
{{- end -}}

{{- define "allot.selector" -}}
app.kubernetes.io/name: {{ include "allot.name" .root }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{- define "allot.labels" -}}
{{ include "allot.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
allot.dev/part: {{ .part }}
{{- end -}}

{{- define "allot.metadata" -}}
name: {{ include "allot.component" . }}
namespace: {{ .root.Release.Namespace }}
labels:
  {{- include "allot.labels" . | nindent 2 }}
{{- end -}}

{{- define "allot.clusterwideMetadata" -}}
name: {{ include "allot.clusterwide" . }}
labels:
  {{- include "allot.labels" . | nindent 2 }}
{{- end -}}

{{- define "allot.serviceAccount" -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  {{- include "allot.metadata" . | nindent 2 }}
{{- end -}}

{{- /* subjects of a binding: the component's account */ -}}
{{- define "allot.subjects" -}}
- kind: ServiceAccount
  name: {{ include "allot.component" . }}
  namespace: {{ .root.Release.Namespace }}
{{- end -}}

{{- /* role: the ClusterRole that the component's account gets; suffix: of the binding's name */ -}}
{{- define "allot.clusterRoleBinding" -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: {{ printf "%s%s" (include "allot.clusterwide" .) (default "" .suffix) }}
  labels:
    {{- include "allot.labels" . | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: {{ .role }}
subjects:
{{ include "allot.subjects" . }}
{{- end -}}

{{- /* The lease by which one of several replicas works, in the release's namespace. */ -}}
{{- define "allot.leaseRules" -}}
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [create]
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  resourceNames: [{{ include "allot.component" . }}]
  verbs: [get, update]
{{- end -}}

{{- define "allot.roleBinding" -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  {{- include "allot.metadata" . | nindent 2 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: {{ include "allot.component" . }}
subjects:
{{ include "allot.subjects" . }}
{{- end -}}

{{- /* What the pods of all Deployments have in common; values: those of the component. Ends before the containers. */ -}}
{{- define "allot.podHead" -}}
serviceAccountName: {{ include "allot.component" . }}
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- /* Where the API server is, if values say so. */ -}}
{{- define "allot.apiServer" -}}
{{- with .root.Values.apiServer.host }}
- name: KUBERNETES_SERVICE_HOST
  value: {{ . | quote }}
- name: KUBERNETES_SERVICE_PORT
  value: {{ $.root.Values.apiServer.port | quote }}
{{- end }}
{{- end -}}

{{- /* What a probe asks: path of those who serve metrics; page, the port, of those who serve a page and know whom they are called by. */ -}}
{{- define "allot.probe" -}}
httpGet:
{{- if .page }}
  path: /
  port: {{ .page }}
  scheme: HTTPS
  httpHeaders:
  - name: Host
    value: localhost
{{- else }}
  path: {{ .path }}
  port: metrics
{{- end }}
{{- end -}}

{{- /* A Deployment of which one replica works: command, the words after `allot`; mounts and volumes, if any; page, if that is what it serves. */ -}}
{{- define "allot.deployment" -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  {{- include "allot.metadata" . | nindent 2 }}
spec:
  replicas: {{ default 1 .values.replicas }}
  selector:
    matchLabels:
      {{- include "allot.selector" . | nindent 6 }}
  strategy:
    {{- if .page }}
    # Who is let in is known to one process.
    type: Recreate
    {{- else }}
    # The next one stands by before the last one goes, and is given its lease.
    rollingUpdate:
      maxSurge: 1
      maxUnavailable: 0
    {{- end }}
  template:
    metadata:
      labels:
        {{- include "allot.selector" . | nindent 8 }}
      {{- with .annotations }}
      annotations:
        {{- toYaml . | nindent 8 }}
      {{- end }}
    spec:
      {{- include "allot.podHead" . | nindent 6 }}
      {{- if .values.affinity }}
      affinity:
        {{- toYaml .values.affinity | nindent 8 }}
      {{- else }}
      affinity:
        podAntiAffinity:
          preferredDuringSchedulingIgnoredDuringExecution:
          - weight: 100
            podAffinityTerm:
              topologyKey: kubernetes.io/hostname
              labelSelector:
                matchLabels:
                  {{- include "allot.selector" . | nindent 18 }}
      {{- end }}
      securityContext:
        runAsNonRoot: true
        runAsUser: 65532
        runAsGroup: 65532
        seccompProfile:
          type: RuntimeDefault
      containers:
      - name: {{ .component }}
        image: {{ include "allot.image" .root }}
        imagePullPolicy: {{ .root.Values.image.pullPolicy }}
        terminationMessagePolicy: FallbackToLogsOnError
        args:
          {{- toYaml (concat .command .values.args) | nindent 10 }}
        {{- if or .env .root.Values.apiServer.host }}
        env:
        {{- with .env }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
        {{- include "allot.apiServer" . | nindent 8 }}
        {{- end }}
        ports:
        - name: {{ default "metrics" .page }}
          containerPort: {{ .values.port }}
        {{- with .ports }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
        startupProbe:
          {{- include "allot.probe" (merge (dict "path" "/livez") .) | nindent 10 }}
          periodSeconds: 1
          # A page is served after the cluster has been read.
          failureThreshold: {{ if .page }}300{{ else }}60{{ end }}
        livenessProbe:
          {{- include "allot.probe" (merge (dict "path" "/livez") .) | nindent 10 }}
          periodSeconds: 10
          timeoutSeconds: 5
        readinessProbe:
          {{- include "allot.probe" (merge (dict "path" "/readyz") .) | nindent 10 }}
          periodSeconds: 5
          timeoutSeconds: 5
        securityContext:
          allowPrivilegeEscalation: false
          readOnlyRootFilesystem: true
          capabilities:
            drop: [ALL]
        resources:
          {{- toYaml .values.resources | nindent 10 }}
        volumeMounts:
        # For credentials that libraries want as files.
        - name: tmp
          mountPath: /tmp
        {{- with .mounts }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      volumes:
      - name: tmp
        emptyDir: {}
      {{- with .volumes }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
{{- end -}}

{{- /* What goes with every Deployment: how many may be away, who reads metrics, who may connect. */ -}}
{{- define "allot.companions" -}}
{{- if and .root.Values.podDisruptionBudget.enabled (gt (int .values.replicas) 1) }}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  {{- include "allot.metadata" . | nindent 2 }}
spec:
  maxUnavailable: 1
  selector:
    matchLabels:
      {{- include "allot.selector" . | nindent 6 }}
{{- end }}
{{ include "allot.metricsService" . }}
{{- if .root.Values.networkPolicy.enabled }}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  {{- include "allot.metadata" . | nindent 2 }}
spec:
  podSelector:
    matchLabels:
      {{- include "allot.selector" . | nindent 6 }}
  policyTypes: [Ingress]
  ingress:
  - ports:
    - port: metrics
    {{- with .root.Values.networkPolicy.metricsFrom }}
    from:
      {{- toYaml . | nindent 6 }}
    {{- end }}
  {{- with .openPort }}
  # API servers are not pods; TLS says who this is.
  - ports:
    - port: {{ . }}
  {{- end }}
{{- end }}
{{- end -}}

{{- define "allot.metricsService" -}}
{{- if .root.Values.metrics.service }}
---
apiVersion: v1
kind: Service
metadata:
  name: {{ include "allot.component" . }}-metrics
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "allot.labels" . | nindent 4 }}
  annotations:
    prometheus.io/scrape: "true"
    prometheus.io/port: {{ .values.port | quote }}
spec:
  clusterIP: None
  selector:
    {{- include "allot.selector" . | nindent 4 }}
  ports:
  - name: metrics
    port: {{ .values.port }}
    targetPort: metrics
{{- with .root.Values.metrics.serviceMonitor }}
{{- if .enabled }}
---
# For Prometheus Operator.
apiVersion: monitoring.coreos.com/v1
kind: ServiceMonitor
metadata:
  name: {{ include "allot.component" $ }}-metrics
  namespace: {{ $.root.Release.Namespace }}
  labels:
    {{- include "allot.labels" $ | nindent 4 }}
    {{- with .labels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  selector:
    matchLabels:
      {{- include "allot.selector" $ | nindent 6 }}
  namespaceSelector:
    matchNames: [{{ $.root.Release.Namespace }}]
  endpoints:
  - port: metrics
    path: /metrics
    interval: {{ .interval }}
    {{- with .relabelings }}
    relabelings:
      {{- toYaml . | nindent 6 }}
    {{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- end -}}
