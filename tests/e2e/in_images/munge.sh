# munged as the operator starts it; a user of mounted files gets a credential, and it is seen whose it is.
echo 'alice:x:2001:2001::/home/alice:/bin/bash' > /var/lib/extrausers/passwd
echo 'alice:x:2001:' > /var/lib/extrausers/group
head -c 1024 /dev/urandom > /tmp/key
install -o munge -g munge -m 400 /tmp/key /etc/munge/munge.key
install -d -o munge -g munge -m 755 /run/munge
setpriv --reuid=munge --regid=munge --clear-groups munged --foreground &
until [[ -S /run/munge/munge.socket.2 ]]; do sleep 0.05; done
setpriv --reuid=alice --regid=alice --clear-groups munge --no-input | unmunge
kill $(jobs -p)
wait
