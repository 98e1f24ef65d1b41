/* gpu_health.h - decides what follows from the faults and counters of a machine's accelerators: nothing, another
 * start of the engine, or another machine.
 *
 * Layer:   agent/core (base/wire, base/core)
 * Threads: pure; the agent's loop calls
 * Rules:   (1) a fault whose code the table does not have changes nothing: it is counted and told. A machine is not
 *              given up for what nobody knows
 *          (2) a fault of the program (NVIDIA: "restart the application") costs the engine's process, because its
 *              context on the GPU is lost. What comes within GPU_SAME_US of it is of the same cause
 *          (3) GPU_STORM_RESTARTS of them within GPU_STORM_US are no accident: the machine is replaced
 *          (4) on a GPU that is cut into parts (MIG) a fault of a program may be a neighbour's: it is told only
 *          (5) a verdict is not taken back: a reset that would cure the GPU needs it idle, and a new machine is
 *              sooner there
 *          (6) heat is reported and never acted upon: the driver lowers the clock by itself
 * Sources: NVIDIA, "Xid Errors", catalogue for Ampere and newer (its immediate actions: RESTART_APP, RESET_GPU,
 *          RESTART_BM, IGNORE), and "GPU Memory Error Management" (row remapping, containment); Linux,
 *          "AMDGPU RAS Support". A GPU that needs a reset has a machine that is to be replaced: who resets it needs
 *          to be root and to have stopped all that runs there
 */
#pragma once
#include "base/wire/machine.h"

#define GPU_STORM_RESTARTS 3
#define GPU_STORM_US INT64_C(1800000000)
#define GPU_SAME_US INT64_C(10000000)
#define GPU_RETIRED_PAGES_MAX 60 /* before Ampere: NVIDIA takes boards back that have as many */
#define GPU_WHY_BYTES 192

enum gpu_action {
    GPU_IGNORE,  /* counted and told */
    GPU_RESTART, /* the engine */
    GPU_REPLACE, /* the machine, once another serves */
    GPU_BROKEN,  /* the machine, now */
    GPU_ACTION_COUNT
};
extern const char *const gpu_action_names[GPU_ACTION_COUNT]; /* ignore restart replace broken */

/* One code of NVIDIA's catalogue. */
struct gpu_rule {
    uint32_t xid;
    enum gpu_action action;
    const char *what; /* a few words */
};
extern const struct gpu_rule gpu_rules[];
extern const uint32_t gpu_rule_count;
const struct gpu_rule *gpu_rule_find(uint32_t xid); /* NULL: not in the table */

/* Counters of one GPU, as far as its driver has them. */
struct gpu_counters {
    bool ecc_known;
    uint64_t ecc_uncorrectable; /* since the driver was loaded; AMD: RAS blocks together */
    bool remap_known, remap_pending, remap_failed;
    bool retired_known;
    uint32_t retired_pages; /* for double bit errors; before Ampere */
    bool lost;              /* the driver says that the GPU is gone */
};

/* The health of a machine; { 0 } is well. */
struct gpu_health {
    enum machine_health verdict;
    char code[WIRE_FAULT_CODE_BYTES_MAX + 1], why[GPU_WHY_BYTES]; /* of the verdict */
    struct gpu_fault {
        char code[WIRE_FAULT_CODE_BYTES_MAX + 1];
        uint32_t count;
    } fault[WIRE_FAULTS_MAX]; /* the last place takes all kinds beyond: "other" */
    uint32_t fault_count;
    int64_t restart_us[GPU_STORM_RESTARTS]; /* the latest ones; 0: none */
    struct gpu_counters before[WIRE_GPUS_MAX];
    bool has_before[WIRE_GPUS_MAX];
};

/* One thing that happened to a GPU, and what follows from it. */
struct gpu_event {
    enum gpu_action action;
    char code[WIRE_FAULT_CODE_BYTES_MAX + 1];
    char why[GPU_WHY_BYTES]; /* a sentence */
};

/* Takes an Xid of GPU `gpu` (< WIRE_GPUS_MAX), and says what is to be done now. RESTART that is of the same cause as
 * the last one comes back as IGNORE; one too many as REPLACE. */
void gpu_health_xid(struct gpu_health *h, uint32_t gpu, uint32_t xid, bool mig, int64_t now_us,
                    struct gpu_event *ret);

/* Takes the counters of GPU `gpu`. True: something follows, in *ret. The first counters of a GPU are its past: only
 * what is wrong as it stands (a failed remapping, too many retired pages, a lost GPU) counts. */
bool gpu_health_counters(struct gpu_health *h, uint32_t gpu, const struct gpu_counters *c, bool mig,
                         int64_t now_us, struct gpu_event *ret);
