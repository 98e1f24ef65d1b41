/* local_disk.c - lists block devices in sysfs and looks their mounts up in mountinfo.
 *
 *     class/block/nvme1n1/device/model "Amazon EC2 NVMe Instance Storage"      36 25 259:1 / /mnt/scratch rw - ext4 /dev/nvme1n1 rw
 *     class/block/nvme1n1/size         of 512 bytes                      ◄──────────────────────────────────── /dev/nvme1n1[pN]
 */
#include "agent/local_disk.h"

#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/io/file.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FILE_BYTES_MAX 4096
#define MOUNTS_BYTES_MAX ((size_t)1 << 20)
#define ENTRIES_MAX 4096 /* of class/block */
#define SECTOR_BYTES 512

bool local_disk_is_own(struct str model)
{
    struct str rest = str_trim(model);
    if (str_starts(rest, STR("Amazon EC2 NVMe Instance Storage"))) return true;
    if (str_starts(rest, STR("Microsoft NVMe Direct Disk"))) return true;
    /* Compute Engine: nvme_card, nvme_card0 and so on; nvme_card-pd is a disk over the network. */
    if (!str_starts(rest, STR("nvme_card"))) return false;
    for (size_t i = strlen("nvme_card"); i < rest.len; i++)
        if (rest.data[i] < '0' || rest.data[i] > '9') return false;
    return true;
}

static int read_line(const char *sysfs, const char *disk, const char *name, struct buf *out)
{
    char path[PATH_MAX];
    int n = snprintf(path, sizeof path, "%s/class/block/%s/%s", sysfs, disk, name);
    return n < (int)sizeof path ? file_read(path, FILE_BYTES_MAX, out, NULL) : -E2BIG;
}

static struct str first_line(const struct buf *text)
{
    struct str rest = buf_view(text);
    return str_trim(str_cut(&rest, '\n'));
}

/* Returns true if `source` is the disk or a partition of it. */
static bool is_of(struct str source, const char *disk)
{
    struct str name = str_from(disk);
    if (!str_starts(source, STR("/dev/"))) return false;
    source = str_of(source.data + 5, source.len - 5);
    if (!str_starts(source, name)) return false;
    return source.len == name.len || source.data[name.len] == 'p';
}

/* Finds a folder on which the disk is mounted. A path with an escape (a blank in it) is not ours to use. */
static bool find_mount(struct str mounts, const char *disk, char folder[LOCAL_DISK_PATH_BYTES])
{
    bool mounted = false;
    folder[0] = 0;
    while (mounts.len > 0) {
        struct str line = str_cut(&mounts, '\n'), where = { 0 }, source = { 0 };
        for (int i = 0; i < 5; i++)
            where = str_cut(&line, ' ');
        size_t at = str_find(line, STR(" - "));
        if (at == SIZE_MAX) continue;
        line = str_of(line.data + at + 3, line.len - at - 3);
        (void)str_cut(&line, ' ');
        source = str_cut(&line, ' ');
        if (!is_of(source, disk)) continue;
        mounted = true;
        if (where.len >= LOCAL_DISK_PATH_BYTES || str_find(where, STR("\\")) != SIZE_MAX) continue;
        char path[LOCAL_DISK_PATH_BYTES];
        memcpy(path, where.data, where.len);
        path[where.len] = 0;
        if (access(path, W_OK) == 0) memcpy(folder, path, where.len + 1);
    }
    return mounted;
}

static void look_at(const char *sysfs, const char *disk, struct str mounts, struct local_disks *ret)
{
    CLEANUP(buf_fini) struct buf model = { 0 };
    CLEANUP(buf_fini) struct buf size = { 0 };
    char folder[LOCAL_DISK_PATH_BYTES];
    uint64_t sectors = 0;
    if (read_line(sysfs, disk, "device/model", &model) < 0) return;
    if (!local_disk_is_own(first_line(&model))) return;
    ret->count++;
    if (read_line(sysfs, disk, "size", &size) == 0) (void)str_to_u64(first_line(&size), &sectors);
    if (!find_mount(mounts, disk, folder)) return;
    ret->mounted++;
    uint64_t bytes = min_u64(sectors, UINT64_MAX / SECTOR_BYTES) * SECTOR_BYTES;
    if (!folder[0] || (ret->folder[0] && bytes <= ret->bytes)) return;
    memcpy(ret->folder, folder, sizeof ret->folder);
    ret->bytes = bytes;
}

void local_disks_find(const char *sysfs, const char *mounts, struct local_disks *ret)
{
    CLEANUP(buf_fini) struct buf list = { 0 };
    char path[PATH_MAX];
    const struct dirent *e;
    uint32_t looked = 0;
    *ret = (struct local_disks){ 0 };
    int n = snprintf(path, sizeof path, "%s/class/block", sysfs);
    DIR *d = n < (int)sizeof path ? opendir(path) : NULL;
    /* Without the list of mounts nothing is known to be mounted. */
    (void)file_read(mounts, MOUNTS_BYTES_MAX, &list, NULL);
    for (uint32_t i = 0; d && i < ENTRIES_MAX && (e = readdir(d)); i++) {
        struct str name = str_from(e->d_name);
        bool whole = str_starts(name, STR("nvme")) && !memchr(name.data, 'p', name.len);
        if (!whole || looked == LOCAL_DISKS_MAX) continue;
        looked++;
        look_at(sysfs, e->d_name, buf_view(&list), ret);
    }
    if (d) closedir(d);
}
