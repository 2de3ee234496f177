#!/usr/bin/env bash
# Work for a local control plane with the demo's workloads (make demo KEEP=1), while
# its programs are recorded: every 45 s pods come, go or are replaced, or everything is
# listed five times.
#
#   KUBECONFIG=... load.sh SECONDS
set -euo pipefail
until=$((SECONDS + $1))
for ((n = 1; SECONDS < until; n++)); do
  case $((n % 4)) in
  1) kubectl -n demo scale deploy/shop --replicas=80 ;;
  2) kubectl -n demo scale deploy/shop --replicas=4 ;;
  3) kubectl -n demo rollout restart deploy/cache deploy/search ;;
  0) for _ in 1 2 3 4 5; do kubectl get pods,vpa,events -A -o json >/dev/null; done ;;
  esac
  sleep 45
done
