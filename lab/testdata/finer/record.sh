#!/usr/bin/env bash
# Records the program of the real node's image (hack/cluster/burn) once a second
# while it follows schedules: a job, a cache, a leak, the same leak killed by the
# kernel, bursts of CPU, and the same bursts under a CPU limit. Needs root for the
# last but one and the last, and control groups of version 1. It takes 40 minutes
# and, all together, a tenth of a core.
#
#   record.sh BURN RECORD OUT
#
# BURN and RECORD are the built programs, OUT is a folder.
set -euo pipefail
burn=$1 record=$2 out=$3
length=2400 # seconds
cpu=/sys/fs/cgroup/cpu/finer memory=/sys/fs/cgroup/memory/finer

# Steps of a schedule, from awk, which draws the same numbers for the same seed.
draw() { awk -v seed="$1" -v length_s="$length" "BEGIN { srand(seed); $2 }" | paste -sd,; }

# Bursts of 250 millicores for 2 to 6 s, then 15 to 55 s of next to nothing.
bursts=$(draw 1 'for (at = 0; at < length_s;) { b = 2 + int(rand() * 5); q = 15 + int(rand() * 41); print "5m:" q "s"; print "250m:" b "s"; at += b + q }')
# A cache that grows by 2 MiB every 10 s to between 120 and 180 MiB, stays there for a minute, and is emptied.
cache=$(draw 2 'for (at = 0; at < length_s;) { top = 120 + int(rand() * 61); for (m = 40; m <= top; m += 2) { print m "Mi:10s"; at += 10 } print top "Mi:60s"; at += 60 }')
# A leak of 1 MiB every 10 s.
leak=$(draw 3 'for (at = 0; at < length_s; at += 10) print 20 + at / 10 "Mi:10s"')

# job runs every four minutes for about a minute: memory grows, and the highest use of both is in the last 8 s.
job() {
  local run top length
  for run in $(seq 0 9); do
    read -r top length < <(awk -v seed="$run" 'BEGIN { srand(seed + 40); print 90 + int(rand() * 61), 50 + int(rand() * 21) }')
    (exec -a finer-job timeout $((length + 8)) bash -c "exec -a finer-job-run '$burn' -cpu=60m:${length}s,150m -memory=20Mi:10s,40Mi:20s,60Mi:$((length - 30))s,${top}Mi") || true
    sleep $((240 - length - 8))
  done
}

# killed starts the leak in a control group of 80 MiB again and again, 10 s after each kill.
killed() {
  mkdir -p "$memory"
  echo $((80 << 20)) >"$memory/memory.limit_in_bytes"
  local until=$((SECONDS + length))
  while ((SECONDS < until)); do
    bash -c "echo \$\$ >'$memory/cgroup.procs'; exec -a finer-killed timeout $((until - SECONDS + 1)) bash -c \"exec -a finer-killed-run '$burn' -cpu=5m -memory='$leak'\"" || true
    sleep 10
  done
}

# start NAME CPU MEMORY starts the program for the whole time.
start() { (exec -a "finer-$1" timeout "$length" bash -c "exec -a finer-$1-run '$burn' -cpu='$2' -memory='$3'") || true; }

# limited is the bursts with at most 100 millicores.
limited() {
  bash -c "echo \$\$ >'$cpu/cgroup.procs'; exec -a finer-limited timeout $length bash -c \"exec -a finer-limited-run '$burn' -cpu='$bursts' -memory=30Mi\"" || true
}

mkdir -p "$out" "$cpu"
echo 100000 >"$cpu/cpu.cfs_period_us"
echo 10000 >"$cpu/cpu.cfs_quota_us"
for name in job cache leak killed bursts limited; do
  extra=()
  [[ $name == limited ]] && extra=(-cgroup "$cpu")
  "$record" -match "^finer-$name-run " -wait 1m -for "${length}s" -gaps "${extra[@]}" -out "$out/$name.csv.gz" &
done
job &
killed &
limited &
start cache 10m "$cache" &
start leak 5m "$leak" &
start bursts "$bursts" 30Mi &
wait
rmdir "$cpu" "$memory"
