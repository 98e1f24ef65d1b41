/* local_disk.h - finds the disks that a cloud's machine has in its own case, and a folder on one that is mounted.
 *
 * Layer:   agent (base/io)
 * Threads: any; reads a few small files of the kernel's, before an engine starts
 * Rules:   (1) nothing is formatted, mounted or removed: docs/clouds/local-disk.sh does that, as root, at a machine's
 *              first boot
 *          (2) a disk is local by the model that its firmware tells, never by its name or size: a volume over the
 *              network may be an NVMe device, too
 * Sources: Amazon EC2 User Guide, "Instance store volumes"; Compute Engine, "Local SSD disks"; Azure, "Temp disks by
 *          NVMe"; proc(5) of mountinfo
 */
#pragma once
#include "base/core/str.h"

#include <stdbool.h>
#include <stdint.h>

#define LOCAL_DISKS_MAX 64 /* block devices that are looked at */
#define LOCAL_DISK_PATH_BYTES 256

struct local_disks {
    uint32_t count;   /* local disks */
    uint32_t mounted; /* those with a folder, their partitions included */
    char folder
        [LOCAL_DISK_PATH_BYTES]; /* mounted and writable for us, on the largest; empty: none */
    uint64_t bytes;              /* of that disk */
};

/* Looks below `sysfs` (/sys) and in `mounts` (/proc/self/mountinfo). */
void local_disks_find(const char *sysfs, const char *mounts, struct local_disks *ret);

/* Returns true if a disk of this model is the machine's own. */
bool local_disk_is_own(struct str model);
