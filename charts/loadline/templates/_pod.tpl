{{- /* The arguments of a program: (list $ program values) */}}
{{- define "loadline.args" -}}
{{- $ := index . 0 }}{{ $program := index . 1 }}{{ $v := index . 2 -}}
{{- if include "loadline.leaderElection" $v }}
- --leader-elect=true
- --leader-elect-resource-namespace={{ $v.leaderElection.resourceNamespace | default $.Release.Namespace }}
- --leader-elect-resource-name={{ $v.leaderElection.resourceName }}
- --leader-elect-lease-duration={{ $v.leaderElection.leaseDuration }}
- --leader-elect-renew-deadline={{ $v.leaderElection.renewDeadline }}
- --leader-elect-retry-period={{ $v.leaderElection.retryPeriod }}
{{- end }}
{{- if eq $program "admission-controller" }}
- --register-webhook={{ include "loadline.register" $ }}
- --webhook-service={{ $v.service.name }}
- --webhook-timeout-seconds={{ $v.mutatingWebhookConfiguration.timeoutSeconds }}
- --webhook-failure-policy-fail={{ eq $v.mutatingWebhookConfiguration.failurePolicy "Fail" }}
- --tls-secret={{ include "loadline.tlsSecret" $ }}
- --reload-cert=true
{{- end }}
{{- if not (kindIs "invalid" $v.logLevel) }}
- --v={{ $v.logLevel }}
{{- end }}
{{- with $v.extraArgs }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- /* The environment of a program: its values */}}
{{- define "loadline.env" -}}
{{- $own := list "" }}
{{- range .extraEnv }}{{ $own = append $own .name }}{{ end -}}
- name: NAMESPACE
  valueFrom:
    fieldRef:
      fieldPath: metadata.namespace
{{- with dig "limits" "memory" "" (.resources | default dict) }}
{{- with include "loadline.softLimit" . }}
{{- if not (has "GOMEMLIMIT" $own) }}
- name: GOMEMLIMIT
  value: {{ quote . }}
{{- end }}
{{- end }}
{{- end }}
{{- with .extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- /* Volumes or mounts of the webhook, with those of its certificate: (list $ given ours) */}}
{{- define "loadline.withCertificate" -}}
{{- $certificate := include "loadline.certificate" (index . 0) }}
{{- $all := list }}
{{- $given := false }}
{{- range index . 1 }}
{{- if ne .name "tls-certs" }}
{{- $all = append $all . }}
{{- else if has $certificate (list "values" "secret") }}
{{- $all = append $all . }}
{{- $given = true }}
{{- end }}
{{- end }}
{{- if not (or $given (eq $certificate "self")) }}
{{- $all = append $all (index . 2 | fromYaml) }}
{{- end }}
{{- if $all }}{{ toYaml $all }}{{ end }}
{{- end }}

{{- define "loadline.certificateVolume" -}}
{{- $keys := ternary (list "ca.crt" "tls.crt" "tls.key") (list "ca" "cert" "key") (eq (include "loadline.certificate" .) "cert-manager") -}}
name: tls-certs
secret:
  defaultMode: 420
  secretName: {{ include "loadline.tlsSecret" . }}
  items:
    - key: {{ index $keys 0 }}
      path: caCert.pem
    - key: {{ index $keys 1 }}
      path: serverCert.pem
    - key: {{ index $keys 2 }}
      path: serverKey.pem
{{- end }}

{{- define "loadline.certificateMount" -}}
name: tls-certs
mountPath: /etc/tls-certs
readOnly: true
{{- end }}

{{- /* One replica a node, as far as there are so many: (list $ program) */}}
{{- define "loadline.spread" -}}
- maxSkew: 1
  topologyKey: kubernetes.io/hostname
  whenUnsatisfiable: ScheduleAnyway
  nodeTaintsPolicy: Honor
  labelSelector:
    matchLabels:
      {{- include "loadline.selector" . | nindent 6 }}
  matchLabelKeys: [pod-template-hash]
{{- end }}

{{- /* And in different zones: (list $ program) */}}
{{- define "loadline.affinity" -}}
podAntiAffinity:
  preferredDuringSchedulingIgnoredDuringExecution:
    - weight: 100
      podAffinityTerm:
        topologyKey: topology.kubernetes.io/zone
        labelSelector:
          matchLabels:
            {{- include "loadline.selector" . | nindent 12 }}
{{- end }}
