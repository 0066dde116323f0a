# Boots a separate systemd in separate namespaces, with only the unit under test. Run by machine.py.
#
#   unshare --mount bash machine.sh CHECKOUT PYTHON PACKAGES CGROUP
#
# What is written below /etc, /var, /opt, /run and /tmp is in memory and gone with the namespace. The node is installed as
# docs/production.md says, except that its code is that of the checkout.
set -eu
checkout=$1 python=$2 packages=$3 cgroup=$4

mount --make-rprivate /
mount -t tmpfs -o mode=0755 tmpfs /run
for folder in etc var opt; do
    mkdir -p "/run/over/$folder/upper" "/run/over/$folder/work"
    mount -t overlay overlay -o "lowerdir=/$folder,upperdir=/run/over/$folder/upper,workdir=/run/over/$folder/work" "/$folder"
done

code=/opt/lmqcluster
mkdir -p $code/bin $code/python $code/packages $code/source/lmqcluster $code/source/lmqcluster_cli /etc/lmqcluster
# Python itself may be below /home or /root, which the unit does not see.
mount --bind "$python" $code/python
mount --bind "$packages" $code/packages
mount --bind "$checkout/lmqcluster" $code/source/lmqcluster
mount --bind "$checkout/cli" $code/source/lmqcluster_cli
cat > $code/bin/lmq <<END
#!/bin/sh
export LD_LIBRARY_PATH=$code/python/lib
exec $code/python/bin/python3 -m lmqcluster_cli.lmq "\$@"
END
chmod 755 $code/bin/lmq

# Only these units exist: no host service is started a second time.
units=/run/systemd/system
mkdir -p $units/lmqcluster.service.d
for target in sysinit basic shutdown network-online multi-user; do
    printf '[Unit]\nDefaultDependencies=no\n' > $units/$target.target
done
cp "$checkout/deploy/systemd/lmqcluster.service" $units/
cat > $units/lmqcluster.service.d/test.conf <<END
[Service]
Environment=PYTHONPATH=$code/source:$code/packages PYTHONDONTWRITEBYTECODE=1
StandardOutput=append:/var/log/lmqcluster.log
StandardError=append:/var/log/lmqcluster.log
END
systemd-sysusers "$checkout/deploy/systemd/lmqcluster.sysusers"

mount -t tmpfs -o mode=1777 tmpfs /tmp
echo $$ > "$cgroup/cgroup.procs"
export SYSTEMD_UNIT_PATH=$units SYSTEMD_GENERATOR_PATH=/nowhere SYSTEMD_ENVIRONMENT_GENERATOR_PATH=/nowhere container=test
# A new namespace for control groups begins at the current group of this shell.
exec unshare --pid --fork --kill-child --cgroup --uts --ipc --mount sh -c '
    mount -t proc proc /proc
    umount -R /sys/fs/cgroup
    mount -t cgroup2 cgroup2 /sys/fs/cgroup
    exec /lib/systemd/systemd --unit=basic.target --log-target=console --show-status=no --log-level=notice'
