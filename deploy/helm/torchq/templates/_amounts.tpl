{{- /* Amounts as numbers, for checks.yaml alone: text and units, whose names are the suffixes. Parts are added up. */ -}}
{{- define "torchq.amount" -}}
{{- $sum := 0.0 -}}
{{- range regexFindAll "[0-9.]+([eE][+]?[0-9]+)?[A-Za-z]*" (toString .text) -1 -}}
{{- $number := regexFind "^[0-9.]+([eE][+]?[0-9]+)?" . -}}
{{- $sum = addf $sum (mulf (float64 $number) (index $.units (trimPrefix $number .) | default 1)) -}}
{{- end -}}
{{- $sum -}}
{{- end }}

{{- /* A quantity of Kubernetes. */ -}}
{{- define "torchq.quantity" -}}
{{- $units := dict "m" 0.001 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "P" 1e15 "E" 1e18 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 "Pi" 1125899906842624 "Ei" 1152921504606846976 -}}
{{- include "torchq.amount" (dict "text" . "units" $units) -}}
{{- end }}

{{- /* A number of bytes as Redis reads it. */ -}}
{{- define "torchq.redisBytes" -}}
{{- include "torchq.amount" (dict "text" . "units" (dict "k" 1e3 "m" 1e6 "g" 1e9 "kb" 1024 "mb" 1048576 "gb" 1073741824)) -}}
{{- end }}

{{- /* A duration as Prometheus reads it, in seconds. */ -}}
{{- define "torchq.seconds" -}}
{{- include "torchq.amount" (dict "text" . "units" (dict "ms" 0.001 "s" 1 "m" 60 "h" 3600)) -}}
{{- end }}
