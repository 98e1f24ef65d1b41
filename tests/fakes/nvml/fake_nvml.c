/* fake_nvml.c - stands in for NVIDIA's management library: a libnvidia-ml.so.1 that says what the files of a folder
 * say.
 *
 * It has the functions that agent/gpu_nvml.c calls, under their names in NVIDIA's reference, and is opened as the real
 * one is: LD_LIBRARY_PATH names its folder. $FAKE_NVML names the folder of the files nvml.NAME, which are read at
 * each call:
 *
 *     gpus    a line a GPU: NAME|UUID|MEMORY IN MIB|MIG
 *     init    what nvmlInit_v2 answers; without the file 0
 *     state   lines "GPU KEY VALUE": ecc, pending, failed, retired, used (MIB), busy, celsius, watts, lost
 *     xids    lines "WHO GPU XID", each told once after an nvmlInit_v2: WHO is a part of its command line, or *
 *
 * NVML_OLD leaves out what a driver of long ago has not; NVML_ANCIENT also has none of the second versions. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define GPUS_MAX 16
enum { OK = 0, NOT_SUPPORTED = 3, NO_PERMISSION = 4, TIMEOUT = 10, LOST = 15 };

struct memory {
    unsigned long long total, free, used;
};
struct utilization {
    unsigned gpu, memory;
};
struct event {
    void *device;
    unsigned long long type, data;
    unsigned gpu_instance, compute_instance;
};

static char handles[GPUS_MAX];                /* a handle is an address in it */
static unsigned told __attribute__((unused)); /* lines of `xids` */

static FILE *open_file(const char *name)
{
    char path[4096];
    const char *folder = getenv("FAKE_NVML");
    snprintf(path, sizeof path, "%s/nvml.%s", folder ? folder : "/nowhere", name);
    return fopen(path, "re");
}

static int line_of(unsigned index, char *line, size_t size)
{
    FILE *f = open_file("gpus");
    int found = 0;
    for (unsigned i = 0; f && i <= index; i++)
        found = fgets(line, (int)size, f) != NULL;
    if (f) fclose(f);
    return found;
}

/* Returns the n-th part of a GPU's line. */
static int part_of(void *device, int n, char *to, size_t size)
{
    char line[512], *at = line;
    if (!line_of((unsigned)((char *)device - handles), line, sizeof line)) return 0;
    line[strcspn(line, "\n")] = 0;
    for (; n > 0 && at; n--)
        at = strchr(at, '|') ? strchr(at, '|') + 1 : NULL;
    if (!at) return 0;
    snprintf(to, size, "%.*s", (int)strcspn(at, "|"), at);
    return 1;
}

/* Returns a value of `state`; -1: it has none. */
static double state_of(void *device, const char *key)
{
    char line[256], name[32];
    unsigned gpu;
    double value, found = -1;
    FILE *f = open_file("state");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "%u %31s %lf", &gpu, name, &value) == 3 &&
            gpu == (unsigned)((char *)device - handles) && strcmp(name, key) == 0)
            found = value;
    if (f) fclose(f);
    return found;
}

/* Answers with a value of `state`, or that there is none. */
static __attribute__((unused)) int answer(void *device, const char *key, double *ret)
{
    if (state_of(device, "lost") > 0) return LOST;
    *ret = state_of(device, key);
    return *ret < 0 ? NOT_SUPPORTED : OK;
}

int nvmlShutdown(void)
{
    return OK;
}

int nvmlDeviceGetName(void *device, char *name, unsigned length)
{
    return part_of(device, 0, name, length) ? OK : LOST;
}

#ifdef NVML_ANCIENT
int nvmlInit(void);
int nvmlInit(void)
#else
int nvmlInit_v2(void)
#endif
{
    int status = OK;
    FILE *f = open_file("init");
    told = 0;
    if (f && fscanf(f, "%d", &status) != 1) status = OK;
    if (f) fclose(f);
    return status;
}

#ifndef NVML_ANCIENT
int nvmlDeviceGetCount_v2(unsigned *count)
{
    char line[512];
    for (*count = 0; *count < GPUS_MAX && line_of(*count, line, sizeof line);)
        ++*count;
    return OK;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device)
{
    char name[256];
    *device = &handles[index];
    return part_of(*device, 0, name, sizeof name) && strcmp(name, "forbidden") == 0 ? NO_PERMISSION
                                                                                    : OK;
}
#endif

#ifndef NVML_OLD
int nvmlDeviceGetUUID(void *device, char *uuid, unsigned length)
{
    return part_of(device, 1, uuid, length) ? OK : NOT_SUPPORTED;
}

int nvmlDeviceGetMemoryInfo(void *device, struct memory *memory)
{
    char text[32];
    double used = 0;
    if (!part_of(device, 2, text, sizeof text)) return NOT_SUPPORTED;
    int status = answer(device, "used", &used);
    *memory = (struct memory){ .total = strtoull(text, NULL, 10) << 20 };
    memory->used = used > 0 ? (unsigned long long)used << 20 : 0;
    return status == LOST ? LOST : OK;
}

int nvmlDeviceGetTemperature(void *device, int sensor, unsigned *celsius)
{
    double value;
    int status = sensor == 0 ? answer(device, "celsius", &value) : NOT_SUPPORTED;
    if (status == OK) *celsius = (unsigned)value;
    return status;
}

int nvmlDeviceGetPowerUsage(void *device, unsigned *milliwatts)
{
    double value;
    int status = answer(device, "watts", &value);
    if (status == OK) *milliwatts = (unsigned)(value * 1000);
    return status;
}

int nvmlDeviceGetUtilizationRates(void *device, struct utilization *utilization)
{
    double value;
    int status = answer(device, "busy", &value);
    if (status == OK) *utilization = (struct utilization){ (unsigned)value, 0 };
    return status;
}

int nvmlDeviceGetTotalEccErrors(void *device, int type, int counter, unsigned long long *count)
{
    double value;
    int status = type == 1 && counter == 0 ? answer(device, "ecc", &value) : NOT_SUPPORTED;
    if (status == OK) *count = (unsigned long long)value;
    return status;
}

int nvmlDeviceGetRemappedRows(void *device, unsigned *corrected, unsigned *uncorrected,
                              unsigned *pending, unsigned *failed)
{
    double value;
    int status = answer(device, "pending", &value);
    if (status != OK) return status;
    *corrected = *uncorrected = 0;
    *pending = value > 0;
    *failed = state_of(device, "failed") > 0;
    return OK;
}

int nvmlDeviceGetRetiredPages(void *device, int cause, unsigned *count,
                              unsigned long long *addresses)
{
    double value;
    (void)addresses;
    int status = cause == 1 ? answer(device, "retired", &value) : NOT_SUPPORTED;
    if (status != OK) return status;
    *count = (unsigned)value;
    return value > 0 ? 7 : OK; /* the room of 0 addresses is too small */
}

int nvmlDeviceGetMigMode(void *device, unsigned *current, unsigned *pending)
{
    char text[16];
    if (!part_of(device, 3, text, sizeof text)) return NOT_SUPPORTED;
    *current = *pending = strcmp(text, "0") != 0;
    return OK;
}

int nvmlEventSetCreate(void **set)
{
    *set = handles;
    return OK;
}

int nvmlEventSetFree(void *set)
{
    (void)set;
    return OK;
}

int nvmlDeviceRegisterEvents(void *device, unsigned long long types, void *set)
{
    (void)device, (void)set;
    return types == 8 ? OK : NOT_SUPPORTED;
}

static int is_for_us(const char *who)
{
    char line[8192];
    FILE *f = fopen("/proc/self/cmdline", "re");
    size_t len = f ? fread(line, 1, sizeof line - 1, f) : 0;
    if (f) fclose(f);
    for (size_t i = 0; i < len; i++)
        if (!line[i]) line[i] = ' ';
    line[len] = 0;
    return strcmp(who, "*") == 0 || strstr(line, who) != NULL;
}

static int next_xid(struct event *event)
{
    char line[256], who[128];
    unsigned gpu, xid, at = 0;
    int found = 0;
    FILE *f = open_file("xids");
    while (f && !found && fgets(line, sizeof line, f)) {
        if (at++ < told) continue;
        told++;
        found =
            sscanf(line, "%127s %u %u", who, &gpu, &xid) == 3 && gpu < GPUS_MAX && is_for_us(who);
    }
    if (f) fclose(f);
    if (found) *event = (struct event){ .device = &handles[gpu], .type = 8, .data = xid };
    return found;
}

int nvmlEventSetWait_v2(void *set, struct event *event, unsigned ms)
{
    (void)set;
    for (unsigned slept = 0;; slept += 20) {
        if (next_xid(event)) return OK;
        if (slept >= ms) return TIMEOUT;
        usleep(20000);
    }
}
#endif
