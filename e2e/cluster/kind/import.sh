#!/bin/sh
# import.sh SYSTEM STORE IMAGES: the containerd of SYSTEM unpacks every archive in IMAGES into STORE.
# Meant for a mount, network and process namespace of its own: nothing is unmounted or stopped here.
set -eu
system=$1 store=$2 images=$3

mount --bind "$system" "$system"
mount -o remount,bind,ro "$system"
mount -t proc proc "$system/proc"
mount -t tmpfs tmpfs "$system/tmp"
mount -t tmpfs tmpfs "$system/run"
mkdir "$system/run/images"
mount --bind "$images" "$system/run/images"
mount --bind "$store" "$system/var/lib/containerd"

PATH=/usr/sbin:/usr/bin:/sbin:/bin exec chroot "$system" /bin/sh -eu -c '
  printf "version = 2\ndisabled_plugins = [\"io.containerd.grpc.v1.cri\"]\n" >/run/config.toml
  containerd --config /run/config.toml >/run/log 2>&1 &
  daemon=$!
  tries=0
  until ctr version >/dev/null 2>&1; do
    tries=$((tries + 1))
    [ "$tries" -lt 300 ] || { echo "containerd does not answer:" >&2; tail -n 5 /run/log >&2; exit 1; }
    sleep 0.1
  done
  for archive in /run/images/*.tar; do
    ctr --namespace k8s.io images import --compress-blobs --snapshotter overlayfs "$archive"
  done
  kill "$daemon"
  wait "$daemon" || true
'
