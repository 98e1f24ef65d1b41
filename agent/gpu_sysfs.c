/* gpu_sysfs.c - reads the files of the amdgpu driver.
 *
 *     class/drm/cardN/device/ vendor, device, product_name, unique_id, mem_info_vram_*, gpu_busy_percent
 *                             ras/BLOCK_err_count   "ue: 0", "ce: 0"
 *                             hwmon/hwmonM/         temp1_input (1/1000 degree), power1_average (uW)
 *
 * A file that is missing, cannot be read or has no number in it is unknown, and nothing else is. */
#include "agent/gpu_sysfs.h"

#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/io/file.h"
#include "base/perf/hardware.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define AMD "0x1002"
#define FILE_BYTES_MAX 4096
#define CARDS_MAX 64   /* cardN with a greater N is not looked at */
#define FILES_MAX 1024 /* of one folder */

/* Products whose board does not tell its name, as a virtual function's does not. */
static const struct {
    const char *id, *name;
} products[] = {
    { "0x74a1", "AMD Instinct MI300X" },
    { "0x74b5", "AMD Instinct MI300X" },
};

void gpu_text(char *to, size_t size, struct str from)
{
    size_t len = 0;
    for (size_t i = 0; i < from.len && len + 1 < size; i++)
        if (from.data[i] >= ' ' && from.data[i] < 127) to[len++] = from.data[i];
    to[len] = 0;
}

struct place {
    const char *root, *card;
};

static int text_of(const struct place *p, const char *name, struct buf *out)
{
    char path[PATH_MAX];
    int n = snprintf(path, sizeof path, "%s/class/drm/%s/device/%s", p->root, p->card, name);
    return n < (int)sizeof path ? file_read(path, FILE_BYTES_MAX, out, NULL) : -E2BIG;
}

static struct str first_line(const struct buf *text)
{
    struct str rest = buf_view(text);
    return str_trim(str_cut(&rest, '\n'));
}

/* Reads the one line of a file; empty: unknown. */
static void line_of(const struct place *p, const char *name, char *to, size_t size)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    to[0] = 0;
    if (text_of(p, name, &text) == 0) gpu_text(to, size, first_line(&text));
}

static bool number_of(const struct place *p, const char *name, uint64_t *ret)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    return text_of(p, name, &text) == 0 && str_to_u64(first_line(&text), ret) == 0;
}

static void describe(const struct place *p, uint32_t index, struct gpu_device *ret)
{
    char id[16];
    *ret = (struct gpu_device){ .index = index };
    snprintf(ret->card, sizeof ret->card, "%s", p->card);
    line_of(p, "product_name", ret->name, sizeof ret->name);
    line_of(p, "device", id, sizeof id);
    line_of(p, "unique_id", ret->uuid, sizeof ret->uuid);
    for (size_t i = 0; i < COUNT_OF(products) && !ret->name[0]; i++)
        if (strcmp(id, products[i].id) == 0)
            snprintf(ret->name, sizeof ret->name, "%s", products[i].name);
    if (!ret->name[0]) snprintf(ret->name, sizeof ret->name, "AMD GPU %s", id);
    (void)number_of(p, "mem_info_vram_total", &ret->memory_bytes);
    const struct hardware *h = hardware_of_product(str_from(ret->name), (double)ret->memory_bytes);
    ret->hardware = h ? h->name : NULL;
}

uint32_t gpu_sysfs_find(const char *root, struct gpu_device ret[WIRE_GPUS_MAX])
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < CARDS_MAX && count < WIRE_GPUS_MAX; i++) {
        char card[16];
        char vendor[16];
        struct place p = { root, card };
        snprintf(card, sizeof card, "card%u", i);
        line_of(&p, "vendor", vendor, sizeof vendor);
        if (strcmp(vendor, AMD) != 0) continue;
        describe(&p, count, &ret[count]);
        count++;
    }
    return count;
}

/* Calls `fn` with the names in a folder of the device, until it returns false. */
static void each_name(const struct place *p, const char *folder,
                      bool (*fn)(const struct place *p, const char *name, void *arg), void *arg)
{
    char path[PATH_MAX];
    int n = snprintf(path, sizeof path, "%s/class/drm/%s/device/%s", p->root, p->card, folder);
    DIR *d = n < (int)sizeof path ? opendir(path) : NULL;
    const struct dirent *e;
    for (uint32_t i = 0; d && i < FILES_MAX && (e = readdir(d)); i++)
        if (e->d_name[0] != '.' && !fn(p, e->d_name, arg)) break;
    if (d) closedir(d);
}

/* Adds a block's uncorrectable errors. */
static bool add_block(const struct place *p, const char *name, void *arg)
{
    struct gpu_counters *k = arg;
    CLEANUP(buf_fini) struct buf text = { 0 };
    char path[PATH_MAX];
    size_t len = strlen(name);
    if (len < 10 || strcmp(name + len - 10, "_err_count") != 0) return true;
    snprintf(path, sizeof path, "ras/%.128s", name);
    if (text_of(p, path, &text) < 0) return true;
    struct str rest = buf_view(&text);
    while (rest.len > 0) {
        uint64_t errors;
        struct str line = str_trim(str_cut(&rest, '\n'));
        if (!str_starts(line, STR("ue:"))) continue;
        if (str_to_u64(str_trim(str_of(line.data + 3, line.len - 3)), &errors) < 0) continue;
        k->ecc_known = true;
        k->ecc_uncorrectable += min_u64(errors, UINT32_MAX);
    }
    return true;
}

static bool read_monitor(const struct place *p, const char *name, void *arg)
{
    struct gpu_sample *s = arg;
    char path[PATH_MAX];
    uint64_t value;
    snprintf(path, sizeof path, "hwmon/%.128s/temp1_input", name);
    if (number_of(p, path, &value)) s->celsius = (double)min_u64(value, 1000000) / 1e3;
    snprintf(path, sizeof path, "hwmon/%.128s/power1_average", name);
    bool known = number_of(p, path, &value);
    snprintf(path, sizeof path, "hwmon/%.128s/power1_input", name);
    if (known || number_of(p, path, &value))
        s->watts = (double)min_u64(value, UINT64_C(100000000000)) / 1e6;
    return false; /* a device has one */
}

void gpu_sysfs_read(const char *root, const struct gpu_device *d, struct gpu_sample *ret)
{
    const struct place p = { root, d->card };
    CLEANUP(buf_fini) struct buf vendor = { 0 };
    uint64_t used, busy;
    *ret = (struct gpu_sample){ 0 };
    /* Its folder is gone, as after a removal from the bus; another error may be ours. */
    ret->counters.lost = text_of(&p, "vendor", &vendor) == -ENOENT;
    if (number_of(&p, "mem_info_vram_used", &used) && number_of(&p, "gpu_busy_percent", &busy)) {
        ret->measured = true;
        ret->memory_used_bytes = used;
        ret->busy = (double)min_u64(busy, 100) / 100;
    }
    each_name(&p, "hwmon", read_monitor, ret);
    each_name(&p, "ras", add_block, &ret->counters);
}
