/* gpu_nvml.c - declares the part of NVML that we call, finds it in the library, and translates its answers.
 *
 * NVML's header is not needed to build: the few types below are its ABI, which NVIDIA keeps within a version suffix
 * (_v2) of a function. Rejected: nvidia-smi, whose output changes between releases and which cannot wait for Xids. */
#include "agent/gpu_nvml.h"

#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/perf/hardware.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define LIBRARY "libnvidia-ml.so.1"
#define NAME_BYTES_MAX 96 /* NVML: of names and UUIDs with a version 2 */

/* ---- NVML's ABI ---- */

enum { /* nvmlReturn_t */
       NVML_SUCCESS = 0,
       NVML_NOT_SUPPORTED = 3,
       NVML_INSUFFICIENT_SIZE = 7,
       NVML_TIMEOUT = 10,
       NVML_GPU_IS_LOST = 15
};
enum { NVML_TEMPERATURE_GPU = 0 };
enum { NVML_UNCORRECTED = 1 };    /* nvmlMemoryErrorType_t */
enum { NVML_VOLATILE = 0 };       /* nvmlEccCounterType_t */
enum { NVML_DOUBLE_BIT_ECC = 1 }; /* nvmlPageRetirementCause_t */
#define NVML_EVENT_XID 8ULL       /* nvmlEventTypeXidCriticalError */

struct nvml_memory { /* nvmlMemory_t */
    unsigned long long total, free, used;
};
struct nvml_utilization { /* nvmlUtilization_t */
    unsigned gpu, memory; /* per cent */
};
struct nvml_event { /* nvmlEventData_t of nvmlEventSetWait_v2 */
    void *device;
    unsigned long long type, data;
    unsigned gpu_instance, compute_instance;
};

struct calls {
    int (*init)(void);
    int (*shutdown)(void);
    int (*count)(unsigned *count);
    int (*handle)(unsigned index, void **device);
    int (*name)(void *device, char *name, unsigned length);
    /* NULL where the driver has none of these: */
    int (*uuid)(void *device, char *uuid, unsigned length);
    int (*memory)(void *device, struct nvml_memory *memory);
    int (*temperature)(void *device, int sensor, unsigned *celsius);
    int (*power)(void *device, unsigned *milliwatts);
    int (*utilization)(void *device, struct nvml_utilization *utilization);
    int (*ecc)(void *device, int type, int counter, unsigned long long *count);
    int (*remapped)(void *device, unsigned *corrected, unsigned *uncorrected, unsigned *pending,
                    unsigned *failed);
    int (*retired)(void *device, int cause, unsigned *count, unsigned long long *addresses);
    int (*mig)(void *device, unsigned *current, unsigned *pending);
    int (*set_new)(void **set);
    int (*set_free)(void *set);
    int (*observe)(void *device, unsigned long long types, void *set);
    int (*wait)(void *set, struct nvml_event *event, unsigned ms);
};

static const struct {
    const char *name;
    size_t offset;
    bool needed;
} symbols[] = {
#define CALL(member, name, needed)                   \
    {                                                \
        name, offsetof(struct calls, member), needed \
    }
    CALL(init, "nvmlInit_v2", true),
    CALL(shutdown, "nvmlShutdown", true),
    CALL(count, "nvmlDeviceGetCount_v2", true),
    CALL(handle, "nvmlDeviceGetHandleByIndex_v2", true),
    CALL(name, "nvmlDeviceGetName", true),
    CALL(uuid, "nvmlDeviceGetUUID", false),
    CALL(memory, "nvmlDeviceGetMemoryInfo", false),
    CALL(temperature, "nvmlDeviceGetTemperature", false),
    CALL(power, "nvmlDeviceGetPowerUsage", false),
    CALL(utilization, "nvmlDeviceGetUtilizationRates", false),
    CALL(ecc, "nvmlDeviceGetTotalEccErrors", false),
    CALL(remapped, "nvmlDeviceGetRemappedRows", false),
    CALL(retired, "nvmlDeviceGetRetiredPages", false),
    CALL(mig, "nvmlDeviceGetMigMode", false),
    CALL(set_new, "nvmlEventSetCreate", false),
    CALL(set_free, "nvmlEventSetFree", false),
    CALL(observe, "nvmlDeviceRegisterEvents", false),
    CALL(wait, "nvmlEventSetWait_v2", false),
#undef CALL
};

struct nvml {
    void *library;
    struct calls call;
    bool inited;
    void *set; /* NULL: no Xids are told */
    const char *deaf;
    uint32_t count;
    void *handle[WIRE_GPUS_MAX];
    struct gpu_device device[WIRE_GPUS_MAX];
};

/* ---- opening ---- */

static int find_symbols(struct nvml *n, struct err *err)
{
    for (size_t i = 0; i < COUNT_OF(symbols); i++) {
        void *symbol = dlsym(n->library, symbols[i].name);
        if (!symbol && symbols[i].needed)
            return err_set(err, -ENOSYS, LIBRARY " has no %s: its driver is too old",
                           symbols[i].name);
        memcpy((char *)&n->call + symbols[i].offset, &symbol, sizeof symbol);
    }
    return 0;
}

static void describe(struct nvml *n, unsigned index)
{
    struct gpu_device *d = &n->device[n->count];
    char text[NAME_BYTES_MAX] = "";
    struct nvml_memory memory = { 0 };
    unsigned mig = 0, pending = 0;
    void *handle = NULL;
    if (n->call.handle(index, &handle) != NVML_SUCCESS || !handle) return;
    *d = (struct gpu_device){ .index = index };
    if (n->call.name(handle, text, sizeof text) == NVML_SUCCESS)
        gpu_text(d->name, sizeof d->name, str_of(text, strnlen(text, sizeof text)));
    memset(text, 0, sizeof text);
    if (n->call.uuid && n->call.uuid(handle, text, sizeof text) == NVML_SUCCESS)
        gpu_text(d->uuid, sizeof d->uuid, str_of(text, strnlen(text, sizeof text)));
    if (n->call.memory && n->call.memory(handle, &memory) == NVML_SUCCESS)
        d->memory_bytes = memory.total;
    if (n->call.mig && n->call.mig(handle, &mig, &pending) == NVML_SUCCESS) d->mig = mig == 1;
    const struct hardware *h = hardware_of_product(str_from(d->name), (double)d->memory_bytes);
    d->hardware = h ? h->name : NULL;
    n->handle[n->count++] = handle;
}

/* Asks for the Xids of all GPUs. A GPU that tells of none is left out: its counters are read all the same. */
static void listen(struct nvml *n)
{
    const struct calls *c = &n->call;
    uint32_t heard = 0;
    if (!c->set_new || !c->set_free || !c->observe || !c->wait) {
        n->deaf = "this driver cannot wait for Xids";
        return;
    }
    if (c->set_new(&n->set) != NVML_SUCCESS) n->set = NULL;
    for (uint32_t i = 0; n->set && i < n->count; i++)
        heard += c->observe(n->handle[i], NVML_EVENT_XID, n->set) == NVML_SUCCESS;
    if (heard > 0) return;
    n->deaf = "this driver tells of no Xids";
    if (n->set) c->set_free(n->set);
    n->set = NULL;
}

CLEANUP_FREEP(nvml, struct nvml)

int nvml_open(struct nvml **ret, struct err *err)
{
    CLEANUP(nvml_freep) struct nvml *n = calloc(1, sizeof *n);
    unsigned count = 0;
    if (!n) return err_set(err, -ENOMEM, "no memory");
    n->library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (!n->library) return err_set(err, -ENOENT, "%s", dlerror());
    int rc = find_symbols(n, err);
    if (rc < 0) return rc;
    int status = n->call.init();
    if (status != NVML_SUCCESS)
        return err_set(err, -ENODEV, LIBRARY ": nvmlInit_v2 answers %d", status);
    n->inited = true;
    status = n->call.count(&count);
    if (status != NVML_SUCCESS)
        return err_set(err, -ENODEV, LIBRARY ": nvmlDeviceGetCount_v2 answers %d", status);
    for (unsigned i = 0; i < count && n->count < WIRE_GPUS_MAX; i++)
        describe(n, i);
    if (n->count == 0)
        return err_set(err, -ENODEV, LIBRARY ": %u GPUs, none of which answers", count);
    listen(n);
    *ret = TAKE(n);
    return 0;
}

void nvml_free(struct nvml *n)
{
    if (!n) return;
    if (n->set) n->call.set_free(n->set);
    if (n->inited) n->call.shutdown();
    free(n);
}

/* ---- questions ---- */

uint32_t nvml_count(const struct nvml *n)
{
    return n->count;
}

const struct gpu_device *nvml_device(const struct nvml *n, uint32_t i)
{
    return &n->device[i];
}

const char *nvml_is_deaf(const struct nvml *n)
{
    return n->deaf;
}

/* Notes that the answer was that the GPU is lost, and returns whether it was a good one. */
static bool good(int status, struct gpu_sample *s)
{
    s->counters.lost |= status == NVML_GPU_IS_LOST;
    return status == NVML_SUCCESS;
}

static void read_counters(const struct calls *c, void *device, struct gpu_sample *s)
{
    struct gpu_counters *k = &s->counters;
    unsigned long long errors = 0;
    unsigned corrected, uncorrected, pending = 0, failed = 0, pages = 0;
    if (c->ecc && good(c->ecc(device, NVML_UNCORRECTED, NVML_VOLATILE, &errors), s)) {
        k->ecc_known = true;
        k->ecc_uncorrectable = errors;
    }
    if (c->remapped && good(c->remapped(device, &corrected, &uncorrected, &pending, &failed), s)) {
        k->remap_known = true;
        k->remap_pending = pending != 0;
        k->remap_failed = failed != 0;
    }
    /* Without room for addresses it answers how many there are. */
    int status =
        c->retired ? c->retired(device, NVML_DOUBLE_BIT_ECC, &pages, NULL) : NVML_NOT_SUPPORTED;
    k->retired_known = status == NVML_SUCCESS || status == NVML_INSUFFICIENT_SIZE;
    if (k->retired_known) k->retired_pages = pages;
}

void nvml_read(const struct nvml *n, uint32_t i, struct gpu_sample *ret)
{
    const struct calls *c = &n->call;
    struct nvml_memory memory = { 0 };
    struct nvml_utilization utilization = { 0 };
    unsigned celsius = 0, milliwatts = 0;
    void *device = n->handle[i];
    *ret = (struct gpu_sample){ 0 };
    bool used = c->memory && good(c->memory(device, &memory), ret);
    bool busy = c->utilization && good(c->utilization(device, &utilization), ret);
    if (used && busy) {
        ret->measured = true;
        ret->memory_used_bytes = memory.used;
        ret->busy = (double)min_u32(utilization.gpu, 100) / 100;
    }
    if (c->temperature && good(c->temperature(device, NVML_TEMPERATURE_GPU, &celsius), ret))
        ret->celsius = min_u32(celsius, 1000);
    if (c->power && good(c->power(device, &milliwatts), ret)) ret->watts = milliwatts / 1e3;
    read_counters(c, device, ret);
}

static void sleep_ms(uint32_t ms)
{
    const struct timespec t = { .tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000 };
    nanosleep(&t, NULL);
}

/* Returns the GPU of an event; n->count: none of ours. The handle of an event may be another one of the same GPU. */
static uint32_t of_event(const struct nvml *n, void *device)
{
    char uuid[NAME_BYTES_MAX] = "";
    for (uint32_t i = 0; i < n->count; i++)
        if (n->handle[i] == device) return i;
    if (!n->call.uuid || n->call.uuid(device, uuid, sizeof uuid) != NVML_SUCCESS) return n->count;
    for (uint32_t i = 0; i < n->count; i++)
        if (n->device[i].uuid[0] && strcmp(n->device[i].uuid, uuid) == 0) return i;
    return n->count;
}

bool nvml_wait(struct nvml *n, uint32_t ms, uint32_t *ret_gpu, uint32_t *ret_xid)
{
    struct nvml_event e = { 0 };
    int status = n->set ? n->call.wait(n->set, &e, ms) : NVML_NOT_SUPPORTED;
    /* Another answer comes at once and would do so again. */
    if (status != NVML_SUCCESS && status != NVML_TIMEOUT) sleep_ms(ms);
    if (status != NVML_SUCCESS || e.type != NVML_EVENT_XID || e.data > UINT32_MAX) return false;
    *ret_gpu = of_event(n, e.device);
    *ret_xid = (uint32_t)e.data;
    return *ret_gpu < n->count;
}
