/* gpu_watch.h - looks for this machine's accelerators and watches their health, beside the agent's loop.
 *
 * Layer:   agent (base/io)
 * Threads: opened, read and closed by the agent's loop; one thread of its own makes every call into a driver
 * Bounds:  GPU_EVENTS_MAX faults that the loop has not taken, beyond which they are counted; GPU_TRIES looks for a
 *          driver that is not there yet, GPU_AGAIN_US apart, after which the thread ends
 * Rules:   (1) the loop never waits for a driver. When it closes a watch whose thread is inside one, it waits
 *              GPU_CLOSE_S at most and leaves the thread to its process's end
 *          (2) GPUs that the engine does not use are not watched
 */
#pragma once
#include "agent/gpu.h"
#include "base/io/loop/loop.h"

#define GPU_EVENTS_MAX 64
#define GPU_WAIT_MS 500 /* between two readings; Xids come at once */
#define GPU_TRIES 20
#define GPU_AGAIN_US 30000000
#define GPU_SILENT_US 60000000 /* a driver that keeps a call for so long is told of */
#define GPU_CLOSE_S 2

struct gpu_watch;
struct agent_report;

/* Is called on the loop with what follows from a fault. */
typedef void gpu_event_fn(void *arg, const struct gpu_event *e);
/* Is called on the loop once the accelerators are known. */
typedef void gpu_found_fn(void *arg);

struct gpu_watch_config {
    struct loop *loop;
    struct str sysfs; /* its root */
    struct str use; /* indices and UUIDs, by commas, of the GPUs that the engine uses; empty: all */
    gpu_found_fn *on_found;
    gpu_event_fn *on_event;
    void *arg;
};

int gpu_watch_open(const struct gpu_watch_config *config, struct gpu_watch **ret, struct err *err);
void gpu_watch_close(struct gpu_watch *w); /* NULL is fine */

/* Return the GPUs that the loop knows of now, and their health. NULL: none. */
uint32_t gpu_watch_count(const struct gpu_watch *w);
const struct gpu_health *gpu_watch_health(const struct gpu_watch *w);
/* Returns how long the driver has kept a call, once that is longer than GPU_SILENT_US; else 0. */
int64_t gpu_watch_silent_us(const struct gpu_watch *w);

/* Fills the parts of a report; the texts live until the loop goes on. */
void gpu_watch_fill(const struct gpu_watch *w, struct wire_gpu gpu[WIRE_GPUS_MAX],
                    struct wire_fault fault[WIRE_FAULTS_MAX], struct agent_report *r);

/* Returns true if a GPU is in the list of `use`, "0,2" or "GPU-1234,...": a UUID may be cut, as CUDA allows. */
bool gpu_is_used(struct str use, uint32_t index, const char *uuid);
