{{/* Parts of the pods that run torchq. */}}

{{- /* A setting as a variable. Helm reads whole numbers as floats, and `on` and `off` as booleans. */ -}}
{{- define "torchq.settingText" -}}
{{- if kindIs "float64" .value -}}
{{- if eq .value (floor .value) }}{{ int64 .value }}{{ else }}{{ .value }}{{ end -}}
{{- else if and (kindIs "bool" .value) (eq .name "autoscale") }}{{ ternary "on" "off" .value }}
{{- else }}{{ .value }}{{ end -}}
{{- end }}

{{- define "torchq.settings" -}}
{{- range $name, $value := .Values.settings }}
TORCHQ_{{ upper $name }}: {{ include "torchq.settingText" (dict "name" $name "value" $value) | quote }}
{{- end }}
{{- end }}

{{- define "torchq.redisEnv" -}}
- name: TORCHQ_REDIS_URL_FILE
  value: {{ printf "/etc/torchq/redis/%s" (ternary .Values.redis.existingSecretKey "url" (ne .Values.redis.existingSecret "")) | quote }}
{{- end }}

{{- /* Pods wait for a Secret that is not filled. */ -}}
{{- define "torchq.redisVolume" -}}
- name: redis
  secret:
    secretName: {{ include "torchq.redisSecret" . | quote }}
    defaultMode: 288
    {{- if not .Values.redis.existingSecret }}
    items:
    - {key: url, path: url}
    {{- end }}
{{- end }}

{{- /* The database of the history: PostgreSQL by a URL in a Secret, else SQLite on a volume. */ -}}
{{- define "torchq.historyEnv" -}}
{{- $database := .Values.recorder.database -}}
{{- if $database.existingSecret -}}
- {name: TORCHQ_HISTORY_URL_FILE, value: {{ printf "/etc/torchq/history/%s" $database.existingSecretKey | quote }}}
{{- else -}}
- {name: TORCHQ_HISTORY_URL, value: "sqlite:////var/lib/torchq/history.sqlite"}
{{- end -}}
{{- end }}

{{- define "torchq.historyMount" -}}
{{- if .Values.recorder.database.existingSecret -}}
- {name: history, mountPath: /etc/torchq/history, readOnly: true}
{{- else -}}
- {name: history, mountPath: /var/lib/torchq}
{{- end -}}
{{- end }}

{{- define "torchq.historyVolume" -}}
- name: history
{{- if .Values.recorder.database.existingSecret }}
  secret:
    secretName: {{ .Values.recorder.database.existingSecret | quote }}
    defaultMode: 288
{{- else }}
  persistentVolumeClaim:
    claimName: {{ default (printf "%s-recorder" (include "torchq.fullname" .)) .Values.recorder.persistence.existingClaim | quote }}
{{- end }}
{{- end }}

{{- /* The kubelet renews the token. No API server takes it: it tells coordinators who asks. */ -}}
{{- define "torchq.tokenVolume" -}}
- name: token
  projected:
    sources:
    - serviceAccountToken: {audience: torchq, expirationSeconds: 600, path: token}
{{- end }}

{{- /* Where a pod may run: values of coordinator, worker, recorder, dashboard or redis. */ -}}
{{- define "torchq.placement" -}}
{{- with .nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- end }}

{{- /* The Deployment of coordinator, worker, recorder or dashboard: root, component, env, ports. A recorder has a database,
and a dashboard a token for coordinators; both use no Redis and take no reports. */ -}}
{{- define "torchq.deployment" -}}
{{- $root := .root -}}
{{- $component := .component -}}
{{- $values := index $root.Values $component -}}
{{- $records := eq $component "recorder" -}}
{{- $shows := eq $component "dashboard" -}}
{{- $queues := not (or $records $shows) -}}
{{- $reports := and $root.Values.reports.enabled $queues -}}
{{- $selector := include "torchq.selector" . | fromYaml -}}
{{- /* The coordinators fill Secrets that have no values. Their own pods must not wait for them. */ -}}
{{- $fills := dict -}}
{{- if eq $component "coordinator" }}{{ $fills = include "torchq.unfilled" $root | fromJson }}{{ end -}}
apiVersion: apps/v1
kind: Deployment
{{ include "torchq.metadata" (dict "root" $root "component" $component "name" (printf "%s-%s" (include "torchq.fullname" $root) $component) "namespace" $root.Release.Namespace) }}
spec:
  replicas: {{ $values.replicas }}
  {{- if and $records (not $values.database.existingSecret) }}
  # A volume is at one node, and SQLite on it has one recorder.
  strategy: {type: Recreate}
  {{- end }}
  selector:
    matchLabels:
      {{- toYaml $selector | nindent 6 }}
  template:
    metadata:
      labels:
        {{- include "torchq.labels" (dict "root" $root "component" $component "more" $values.podLabels) | nindent 8 }}
      annotations:
        {{- merge (dict "checksum/settings" (include "torchq.settings" $root | sha256sum)) (deepCopy $values.podAnnotations) | toYaml | nindent 8 }}
    spec:
      serviceAccountName: {{ include "torchq.account" . | quote }}
      automountServiceAccountToken: true
      # Variables about Services of the namespace would look like settings.
      enableServiceLinks: false
      # A process that stops finishes what it runs; its supervisor kills it 3 s after drain_seconds.
      terminationGracePeriodSeconds: {{ add 10 (ceil (float64 (default 20 $root.Values.settings.drain_seconds))) }}
      {{- with $root.Values.imagePullSecrets }}
      imagePullSecrets:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $values.topologySpreadConstraints }}
      topologySpreadConstraints:
      {{- range . }}
      {{- $constraint := deepCopy . }}
      {{- if not (hasKey $constraint "labelSelector") }}
      {{- $_ := set $constraint "labelSelector" (dict "matchLabels" $selector) }}
      {{- end }}
      {{- if $values.spreadRequired }}
      {{- $_ := set $constraint "whenUnsatisfiable" "DoNotSchedule" }}
      {{- $constraint = merge $constraint (dict "matchLabelKeys" (list "pod-template-hash")) }}
      {{- end }}
      - {{- toYaml $constraint | nindent 8 }}
      {{- end }}
      {{- end }}
      {{- include "torchq.placement" $values | nindent 6 }}
      securityContext:
        {{- toYaml $values.podSecurityContext | nindent 8 }}
      {{- with $fills }}
      initContainers:
      - name: fill-secrets
        image: {{ include "torchq.image" (dict "root" $root "image" $root.Values.image) | quote }}
        imagePullPolicy: {{ $root.Values.image.pullPolicy }}
        args:
        - --namespace
        - {{ $root.Release.Namespace | quote }}
        - fill-secrets
        {{- range $part, $name := . }}
        - --{{ $part }}
        - {{ $name | quote }}
        - --wait-for
        - /etc/torchq/{{ $part }}/{{ ternary "url" "key" (eq $part "redis") }}
        {{- end }}
        resources:
          {{- toYaml $values.resources | nindent 10 }}
        securityContext:
          {{- toYaml $values.securityContext | nindent 10 }}
        volumeMounts:
        {{- range $part, $name := . }}
        - {name: {{ $part }}, mountPath: /etc/torchq/{{ $part }}, readOnly: true}
        {{- end }}
      {{- end }}
      {{- if and $records $values.database.existingSecret }}
      initContainers:
      # A change of the tables only adds: recorders of the version before go on meanwhile.
      - name: migrate
        image: {{ include "torchq.image" (dict "root" $root "image" $root.Values.image) | quote }}
        imagePullPolicy: {{ $root.Values.image.pullPolicy }}
        args: [history, migrate]
        envFrom:
        - configMapRef: {name: {{ printf "%s-settings" (include "torchq.fullname" $root) | quote }}}
        env:
        {{- include "torchq.historyEnv" $root | nindent 8 }}
        resources:
          {{- toYaml $values.resources | nindent 10 }}
        securityContext:
          {{- toYaml $values.securityContext | nindent 10 }}
        volumeMounts:
        {{- include "torchq.historyMount" $root | nindent 8 }}
      {{- end }}
      containers:
      - name: {{ $component }}
        image: {{ include "torchq.image" (dict "root" $root "image" $root.Values.image) | quote }}
        imagePullPolicy: {{ $root.Values.image.pullPolicy }}
        args: {{ ternary (list "dashboard" "serve") (list $component) $shows | toJson }}
        envFrom:
        - configMapRef: {name: {{ printf "%s-settings" (include "torchq.fullname" $root) | quote }}}
        env:
        {{- if $records }}
        {{- include "torchq.historyEnv" $root | nindent 8 }}
        {{- else if $queues }}
        {{- include "torchq.redisEnv" $root | nindent 8 }}
        {{- end }}
        - {name: TORCHQ_METRICS_ADDRESS, value: 0.0.0.0}
        - {name: TORCHQ_METRICS_PORT, value: "8081"}
        {{- toYaml .env | nindent 8 }}
        {{- if $reports }}
        - name: TORCHQ_REPORT_KEY_FILE
          value: {{ printf "/etc/torchq/reports/%s" (ternary $root.Values.reports.existingSecretKey "key" (ne $root.Values.reports.existingSecret "")) | quote }}
        {{- end }}
        ports:
        {{- toYaml .ports | nindent 8 }}
        startupProbe:
          {{- toYaml $values.startupProbe | nindent 10 }}
        livenessProbe:
          {{- toYaml $values.livenessProbe | nindent 10 }}
        readinessProbe:
          {{- toYaml $values.readinessProbe | nindent 10 }}
        resources:
          {{- toYaml $values.resources | nindent 10 }}
        securityContext:
          {{- toYaml $values.securityContext | nindent 10 }}
        volumeMounts:
        {{- if $records }}
        {{- include "torchq.historyMount" $root | nindent 8 }}
        {{- else if $shows }}
        - {name: token, mountPath: /var/run/secrets/torchq, readOnly: true}
        {{- else }}
        - {name: redis, mountPath: /etc/torchq/redis, readOnly: true}
        {{- end }}
        {{- if $reports }}
        - {name: reports, mountPath: /etc/torchq/reports, readOnly: true}
        {{- end }}
      volumes:
      {{- if $records }}
      {{- include "torchq.historyVolume" $root | nindent 6 }}
      {{- else if $shows }}
      {{- include "torchq.tokenVolume" $root | nindent 6 }}
      {{- else }}
      {{- include "torchq.redisVolume" $root | nindent 6 }}
          {{- if hasKey $fills "redis" }}
          optional: true
          {{- end }}
      {{- end }}
      {{- if $reports }}
      - name: reports
        secret:
          secretName: {{ include "torchq.reportsSecret" $root | quote }}
          defaultMode: 288
          {{- if hasKey $fills "reports" }}
          optional: true
          {{- end }}
          items:
          - {key: {{ ternary $root.Values.reports.existingSecretKey "key" (ne $root.Values.reports.existingSecret "") | quote }}, path: {{ ternary $root.Values.reports.existingSecretKey "key" (ne $root.Values.reports.existingSecret "") | quote }}}
      {{- end }}
{{- end }}

{{- /* The PodDisruptionBudget of coordinator, worker, recorder or dashboard: root, component. */ -}}
{{- define "torchq.budget" -}}
{{- $values := index .root.Values .component -}}
{{- with $values.podDisruptionBudget }}
{{- if .enabled }}
apiVersion: policy/v1
kind: PodDisruptionBudget
{{ include "torchq.metadata" (dict "root" $.root "component" $.component "name" (printf "%s-%s" (include "torchq.fullname" $.root) $.component) "namespace" $.root.Release.Namespace) }}
spec:
  {{- if ne (toString .minAvailable) "<nil>" }}
  minAvailable: {{ .minAvailable }}
  {{- else }}
  maxUnavailable: {{ .maxUnavailable }}
  {{- end }}
  # A pod that is not ready protects nothing.
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels:
      {{- include "torchq.selector" $ | nindent 6 }}
{{- end }}
{{- end }}
{{- end }}
