#!/bin/sh
# exec-example-boot.sh - user data for instances of exec-example.sh, which are processes in folders of their own.
#
# The launch document names paths below /var/lib/muster, as a machine of its own has them; here they are below the
# instance's folder.
set -eu
umask 077
mkdir -p instance
echo '${LAUNCH}' | base64 -d | sed "s|/var/lib/muster|$PWD|g" >launch.json
echo '${TOKEN}' | base64 -d >join.token
until muster agent --spec launch.json; do sleep 1; done
