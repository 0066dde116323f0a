# Becomes one pod of the chart's StatefulSet, in its own network and mount namespaces. Run by pods.py.
#
#   unshare --net --mount sh pod.sh VOLUMES ADDRESS SCRIPT
#
# VOLUMES has the pod's hosts file, its secrets, and its volume below "lib".
set -eu
volumes=$1 address=$2 script=$3

mount --make-rprivate /
mount -t tmpfs -o mode=0755 tmpfs /run
mkdir -p /run/etc/upper /run/etc/work
mount -t overlay overlay -o "lowerdir=/etc,upperdir=/run/etc/upper,workdir=/run/etc/work" /etc
mkdir -p /etc/lmq/secrets
cp "$volumes/secrets/"* /etc/lmq/secrets/
mount --bind "$volumes/hosts" /etc/hosts
mount --bind "$volumes/lib" /var/lib
ip link set lo up
until ip link set eth0 up 2>/dev/null; do sleep 0.05; done
ip addr add "$address/24" dev eth0
exec /bin/sh -ec "$script"
