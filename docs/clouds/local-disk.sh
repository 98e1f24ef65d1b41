#!/bin/sh
# local-disk.sh - makes a scratch folder of a disk in this machine's own case: for a template of user data, before the
# agent starts, as root.
#
# A disk is taken when its firmware says that it is the machine's own, nothing of it is mounted, and wipefs finds no
# signature on it: no file system, no partition table, no RAID member. Anything else is left alone. What is written there is
# lost when the machine ends.
set -eu
dev=${DEV:-/dev}
sys=${SYS:-/sys}
folder=${1:-/mnt/scratch}

for path in "$sys"/class/block/nvme*n*; do
    disk=${path##*/}
    case "$disk" in
    *p* | 'nvme*n*') continue ;;
    esac
    case "$(sed 's/ *$//' "$path/device/model")" in
    'Amazon EC2 NVMe Instance Storage' | nvme_card | nvme_card[0-9] | nvme_card[0-9][0-9]) ;;
    'Microsoft NVMe Direct Disk' | 'Microsoft NVMe Direct Disk v2') ;;
    *) continue ;;
    esac
    if grep -q " $dev/$disk\(p[0-9]*\)\{0,1\} " /proc/self/mountinfo; then
        echo "$disk: mounted already" && continue
    fi
    found=$(wipefs --no-act --noheadings "$dev/$disk")
    if [ -n "$found" ]; then
        echo "$disk: has $found: left alone" && continue
    fi
    mkfs.ext4 -q -E nodiscard "$dev/$disk"
    mkdir -p "$folder"
    mount -o noatime "$dev/$disk" "$folder"
    echo "$disk: $folder"
    exit 0
done
echo "no disk of this machine's own is free"
