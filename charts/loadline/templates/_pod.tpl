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

{{- /* The environment of a program: (list values resources) */}}
{{- define "loadline.env" -}}
{{- $v := index . 0 }}
{{- $own := list "" }}
{{- range $v.extraEnv }}{{ $own = append $own .name }}{{ end -}}
- name: NAMESPACE
  valueFrom:
    fieldRef:
      fieldPath: metadata.namespace
{{- with dig "limits" "memory" "" (dict "limits" ((index . 1).limits | default dict)) }}
{{- with include "loadline.softLimit" . }}
{{- if not (has "GOMEMLIMIT" $own) }}
- name: GOMEMLIMIT
  value: {{ quote . }}
{{- end }}
{{- end }}
{{- end }}
{{- with $v.extraEnv }}
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

{{- /* What the pod of a program gets where a value is unset, and the maps of the reference's chart that
       a value is merged with: (list $ program) */}}
{{- define "loadline.defaults" -}}
{{- $selector := include "loadline.selector" . }}
unset:
  podSecurityContext:
    runAsNonRoot: true
    runAsUser: 65534
    runAsGroup: 65534
    seccompProfile: {type: RuntimeDefault}
  containerSecurityContext:
    allowPrivilegeEscalation: false
    readOnlyRootFilesystem: true
    capabilities: {drop: [ALL]}
  resources:
    requests: {cpu: 50m, memory: {{ ternary "200Mi" "500Mi" (eq (index . 1) "admission-controller") }}}
    limits: {memory: {{ ternary "500Mi" "1000Mi" (eq (index . 1) "admission-controller") }}}
  # Replicas run on different nodes and in different zones, as far as there are enough.
  topologySpreadConstraints:
    - maxSkew: 1
      topologyKey: kubernetes.io/hostname
      whenUnsatisfiable: ScheduleAnyway
      nodeTaintsPolicy: Honor
      labelSelector:
        matchLabels:
          {{- $selector | nindent 10 }}
      matchLabelKeys: [pod-template-hash]
  affinity:
    podAntiAffinity:
      preferredDuringSchedulingIgnoredDuringExecution:
        - weight: 100
          podAffinityTerm:
            topologyKey: topology.kubernetes.io/zone
            labelSelector:
              matchLabels:
                {{- $selector | nindent 16 }}
  # The updater keeps new pods off overloaded nodes, but not those of the programs.
  tolerations: [{key: loadline.dev/overloaded, operator: Exists, effect: NoSchedule}]
merged:
  podSecurityContext:
    runAsNonRoot: true
    runAsUser: 65534
  affinity:
    podAntiAffinity:
      preferredDuringSchedulingIgnoredDuringExecution:
        - weight: 100
          podAffinityTerm:
            labelSelector:
              matchExpressions:
                - {key: app.kubernetes.io/component, operator: In, values: [{{ index . 1 }}]}
            topologyKey: kubernetes.io/hostname
{{- end }}

{{- /* A part of a pod in the form {value: ...}: (list $ program name given) */}}
{{- define "loadline.part" -}}
{{- $name := index . 2 }}{{ $given := index . 3 }}
{{- $defaults := include "loadline.defaults" . | fromYaml }}
{{- if kindIs "invalid" $given }}
{{- $given = get $defaults.unset $name }}
{{- else if eq $name "tolerations" }}
{{- if regexMatch "--node-load-taint" (join " " (index . 0).Values.updater.extraArgs) }}
{{- $given = concat $given $defaults.unset.tolerations | uniq }}
{{- end }}
{{- else if hasKey $defaults.merged $name }}
{{- $given = include "loadline.merge" (list $given (get $defaults.merged $name)) | fromYaml }}
{{- end }}
{{- dict "value" $given | toYaml }}
{{- end }}

{{- /* A map over defaults, merged as Helm merges values: (list given defaults). A null removes a default. */}}
{{- define "loadline.merge" -}}
{{- $all := dict }}
{{- $defaults := index . 1 }}
{{- range $key, $value := $defaults }}{{ $_ := set $all $key $value }}{{ end }}
{{- range $key, $value := index . 0 }}
{{- $default := get $defaults $key }}
{{- if kindIs "invalid" $value }}
{{- $_ := unset $all $key }}
{{- else if and (kindIs "map" $value) (kindIs "map" $default) }}
{{- $_ := set $all $key (include "loadline.merge" (list $value $default) | fromYaml) }}
{{- else }}
{{- $_ := set $all $key $value }}
{{- end }}
{{- end }}
{{- toYaml $all }}
{{- end }}
