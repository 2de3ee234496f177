{{- /* Names and labels are those of the reference's chart, so that its releases can be upgraded. */}}
{{- define "loadline.name" -}}
{{- .Values.nameOverride | default "vertical-pod-autoscaler" | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "loadline.fullname" -}}
{{- $name := .Values.nameOverride | default "vertical-pod-autoscaler" }}
{{- $full := ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) }}
{{- .Values.fullnameOverride | default $full | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- /* The programs, and the names of their values. */}}
{{- define "loadline.programs" -}}
recommender: recommender
updater: updater
admission-controller: admissionController
{{- end }}

{{- /* The port of metrics and probes of a program. */}}
{{- define "loadline.port" -}}
{{- get (dict "recommender" 8942 "updater" 8943 "admission-controller" 8944) . }}
{{- end }}

{{- /* What selects the pods of a program: (list $ program) */}}
{{- define "loadline.selector" -}}
{{- $ := index . 0 -}}
app.kubernetes.io/name: {{ include "loadline.name" $ }}
app.kubernetes.io/instance: {{ $.Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{- /* The labels of an object of a program: (list $ program) */}}
{{- define "loadline.labels" -}}
{{- $ := index . 0 -}}
{{ include "loadline.selector" . }}
app.kubernetes.io/component-instance: {{ $.Release.Name }}-{{ index . 1 }}
{{ include "loadline.commonLabels" $ }}
{{- end }}

{{- define "loadline.commonLabels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- /* The service account of a program: (list $ program values) */}}
{{- define "loadline.serviceAccount" -}}
{{- (index . 2).serviceAccount.name | default (printf "%s-%s" (include "loadline.fullname" (index . 0)) (index . 1)) }}
{{- end }}

{{- /* Whether replicas take turns by a Lease, "true" or nothing: the values of a program */}}
{{- define "loadline.leaderElection" -}}
{{- with .leaderElection }}
{{- if ternary (gt (int $.replicas) 1) .enabled (kindIs "invalid" .enabled) }}true{{ end }}
{{- end }}
{{- end }}

{{- /* Where the certificate of the webhook comes from: self, cert-manager, values, or secret. */}}
{{- define "loadline.certificate" -}}
{{- with .Values.admissionController }}
{{- if and .certManager.enabled .certGen.enabled }}
{{- fail "admissionController.certManager.enabled needs admissionController.certGen.enabled=false: there is one certificate" }}
{{- else if and .certManager.enabled .tls.create }}
{{- fail "admissionController.certManager.enabled needs admissionController.tls.create=false: there is one certificate" }}
{{- else if and .registerWebhook .certGen.enabled }}
{{- fail "admissionController.registerWebhook mounts a Secret of yours and needs admissionController.certGen.enabled=false; with certGen.enabled the program registers its webhook itself, too" }}
{{- else if .certManager.enabled }}cert-manager
{{- else if .tls.create }}values
{{- else if .certGen.enabled }}self
{{- else }}secret
{{- end }}
{{- end }}
{{- end }}

{{- /* Whether the program registers its webhook, "true" or "false". */}}
{{- define "loadline.register" -}}
{{- or .Values.admissionController.registerWebhook (ne (include "loadline.certificate" .) "secret") }}
{{- end }}

{{- define "loadline.tlsSecret" -}}
{{- .Values.admissionController.tls.secretName | default (printf "%s-tls" (include "loadline.fullname" .)) }}
{{- end }}

{{- /* Nine tenths of a memory limit, in bytes; nothing for amounts with an exponent. */}}
{{- define "loadline.softLimit" -}}
{{- $text := ternary . (printf "%.0f" (float64 .)) (kindIs "string" .) }}
{{- if regexMatch "^[0-9]+([.][0-9]+)?([kMGT]|[KMGT]i)?$" $text }}
{{- $units := dict "" 1 "k" 1000 "M" 1000000 "G" 1000000000 "T" 1000000000000 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 }}
{{- mulf (regexFind "^[0-9.]+" $text | float64) (get $units (regexFind "[kKMGTi]+$" $text)) 0.9 | int64 }}
{{- end }}
{{- end }}

{{- /* The names of the values: of the chart, of each program, and further ones of single programs. */}}
{{- define "loadline.names" -}}
chart: [imagePullSecrets, nameOverride, fullnameOverride, commonLabels, rbac, podSecurityContext, containerSecurityContext, admissionController, recommender, updater, crds, networkPolicy, global]
programs: [enabled, annotations, image, serviceAccount, replicas, revisionHistoryLimit, updateStrategy, podLabels, podAnnotations, extraEnv, logLevel, extraArgs, resources, nodeSelector, affinity, tolerations, topologySpreadConstraints, podDisruptionBudget, priorityClassName]
recommender: [leaderElection]
updater: [leaderElection]
admissionController: [service, registerWebhook, hostNetwork, certGen, certManager, tls, volumes, volumeMounts, mutatingWebhookConfiguration]
{{- end }}

{{- /* The values that are unknown to this chart, separated by commas. */}}
{{- define "loadline.unknown" -}}
{{- $names := include "loadline.names" . | fromYaml }}
{{- $unknown := list }}
{{- range $key, $value := .Values }}
{{- if not (has $key $names.chart) }}
{{- $unknown = append $unknown $key }}
{{- else if hasKey $names $key }}
{{- range $below, $_ := $value }}
{{- if not (has $below (concat $names.programs (get $names $key))) }}{{ $unknown = append $unknown (printf "%s.%s" $key $below) }}{{ end }}
{{- end }}
{{- end }}
{{- end }}
{{- join ", " $unknown }}
{{- end }}
