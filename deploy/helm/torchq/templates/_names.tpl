{{/* The names and labels of all objects. Suffixes of names have at most 20 characters, and a name at most 63. */}}
{{- define "torchq.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end }}

{{- define "torchq.fullname" -}}
{{- $name := include "torchq.name" . -}}
{{- /* Names of Services have no dots, and begin with a letter. */ -}}
{{- $release := replace "." "-" .Release.Name -}}
{{- $full := ternary $release (printf "%s-%s" $release $name) (contains $name $release) -}}
{{- if regexMatch "^[0-9]" $full }}{{ $full = printf "torchq-%s" $full }}{{ end -}}
{{- $full = default $full .Values.fullnameOverride -}}
{{- /* A name that is cut keeps a part that no other name has. */ -}}
{{- if gt (len $full) 43 }}{{ printf "%s-%s" (trunc 34 $full | trimSuffix "-") (sha256sum $full | trunc 8) }}{{ else }}{{ $full }}{{ end -}}
{{- end }}

{{- /* The beginning of names outside the release's namespace, where releases of several namespaces meet. */ -}}
{{- define "torchq.clusterName" -}}
{{- if ne .Release.Namespace "torchq-system" }}{{ .Release.Namespace }}:{{ end }}{{ include "torchq.fullname" . }}
{{- end }}

{{- define "torchq.selector" -}}
app.kubernetes.io/name: {{ include "torchq.name" .root | quote }}
app.kubernetes.io/instance: {{ .root.Release.Name | quote }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "torchq.version" -}}
{{- default .Chart.AppVersion .Values.image.tag | trunc 63 | trimAll "._-" -}}
{{- end }}

{{- /* Labels of an object: first those of the user, so that none of them replaces one of these. */ -}}
{{- define "torchq.labels" -}}
{{- $own := include "torchq.selector" . | fromYaml -}}
{{- $_ := set $own "app.kubernetes.io/version" (include "torchq.version" .root) -}}
{{- $_ := set $own "app.kubernetes.io/part-of" "torchq" -}}
{{- $_ := set $own "app.kubernetes.io/managed-by" .root.Release.Service -}}
{{- merge $own (.more | default dict | deepCopy) (deepCopy .root.Values.commonLabels) | toYaml -}}
{{- end }}

{{- /* The metadata of an object: root, component, name; namespace, more (labels) and annotations if it has them. */ -}}
{{- define "torchq.metadata" -}}
metadata:
  name: {{ .name | quote }}
  {{- with .namespace }}
  namespace: {{ . | quote }}
  {{- end }}
  labels:
    {{- include "torchq.labels" . | nindent 4 }}
  {{- with merge (.annotations | default dict | deepCopy) (deepCopy .root.Values.commonAnnotations) }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}

{{- define "torchq.image" -}}
{{- $image := .image -}}
{{- with $image.registry }}{{ trimSuffix "/" . }}/{{ end }}{{ $image.repository }}
{{- if $image.digest }}@{{ $image.digest }}{{ else }}:{{ default .root.Chart.AppVersion $image.tag }}{{ end -}}
{{- end }}

{{- /* The account of coordinator, worker, recorder, dashboard or doctor. */ -}}
{{- define "torchq.account" -}}
{{- $own := "" -}}
{{- if has .component (list "coordinator" "worker" "recorder" "dashboard") -}}
{{- $own = default .root.Values.serviceAccount.name (index .root.Values .component).serviceAccount.name -}}
{{- end -}}
{{- default (printf "%s-%s" (include "torchq.fullname" .root) .component) $own -}}
{{- end }}

{{- /* The processes that are Deployments of this chart, as JSON. */ -}}
{{- define "torchq.processes" -}}
{{- $found := list "coordinator" "worker" -}}
{{- if .Values.recorder.enabled }}{{ $found = append $found "recorder" }}{{ end -}}
{{- if .Values.dashboard.enabled }}{{ $found = append $found "dashboard" }}{{ end -}}
{{- toJson $found -}}
{{- end }}

{{- /* The rules of the roles, with the Services of this release. */ -}}
{{- define "torchq.rules" -}}
{{- $fullname := include "torchq.fullname" . -}}
{{- .Files.Get "files/rbac.yaml" | replace "PROXIED_SERVICE" (printf "http:%s-coordinator:http" $fullname) | replace "PROXIED_RECORDER" (printf "http:%s-recorder:http" $fullname) -}}
{{- end }}

{{- define "torchq.leaseNamespace" -}}
{{- default (.Files.Get "files/settings.yaml" | fromYaml).lease_namespace .Values.settings.lease_namespace -}}
{{- end }}

{{- /* Whether Helm reads the cluster: a list is there even if it has no items. The kinds that Helm knows say less, since
other tools name them when they render without a cluster. */ -}}
{{- define "torchq.isLive" -}}
{{- if lookup "v1" "Secret" .Release.Namespace "" }}true{{ end -}}
{{- end }}

{{- define "torchq.redisIsBundled" -}}
{{- if and .Values.redis.bundled (not .Values.redis.existingSecret) }}true{{ end -}}
{{- end }}

{{- define "torchq.redisSecret" -}}
{{- default (printf "%s-redis" (include "torchq.fullname" .)) .Values.redis.existingSecret -}}
{{- end }}

{{- define "torchq.reportsSecret" -}}
{{- default (printf "%s-reports" (include "torchq.fullname" .)) .Values.reports.existingSecret -}}
{{- end }}

{{- /* The Secrets of the chart itself: redis and reports, as JSON. */ -}}
{{- define "torchq.madeSecrets" -}}
{{- $names := dict -}}
{{- if include "torchq.redisIsBundled" . }}{{ $_ := set $names "redis" (include "torchq.redisSecret" .) }}{{ end -}}
{{- if and .Values.reports.enabled (not .Values.reports.existingSecret) }}{{ $_ := set $names "reports" (include "torchq.reportsSecret" .) }}{{ end -}}
{{- toJson $names -}}
{{- end }}

{{- /* Those of them whose values the cluster has to make, since Helm does not know it. */ -}}
{{- define "torchq.unfilled" -}}
{{- $names := dict -}}
{{- if not (include "torchq.isLive" .) -}}
{{- range $component, $name := include "torchq.madeSecrets" . | fromJson -}}
{{- if not (lookup "v1" "Secret" $.Release.Namespace $name).data }}{{ $_ := set $names $component $name }}{{ end -}}
{{- end -}}
{{- end -}}
{{- toJson $names -}}
{{- end }}
