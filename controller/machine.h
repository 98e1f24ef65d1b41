/* machine.h - keeps what agents report of their machines' accelerators, counts their faults, and drains instances whose
 * machine is broken.
 *
 * Layer:   controller, private to it
 * Threads: the loop's
 * Rules:   (1) nothing here is stored: an agent repeats it in every report
 *          (2) a failing machine is the plan's to replace (core/plan.h, rule 5); a broken one is drained at once,
 *              as one that its provider takes away
 *          (3) faults are counted by their rise; an agent's first report says only how many there were before it
 */
#pragma once
#include "base/wire/report.h"
#include "controller/core/intent.h"

struct control;
struct json_writer;

/* Holds an agent's report of its machine, in one piece of memory with its texts. */
struct known_machine {
    uint32_t gpu_count, fault_count;
    struct wire_gpu gpu[WIRE_GPUS_MAX];
    struct wire_fault fault[WIRE_FAULTS_MAX];
    char texts[];
};

/* The part of an instance's detail. */
struct machine_detail {
    struct known_machine *known; /* NULL: no accelerator was found, or no memory to keep them */
    enum machine_health health;
    char code[WIRE_FAULT_CODE_BYTES_MAX + 1], why[INTENT_WHY_BYTES];
    bool compared; /* with its offer */
};

/* Takes a report, before its boot id and number are kept. */
void control_keep_machine(struct control *c, uint32_t at, const struct agent_report *r,
                          int64_t now_us);

/* Drains an instance whose machine is broken. As control_apply. */
int control_heed_machine(struct control *c, uint32_t at, int64_t now_us);

/* Writes "machine" and "gpus" of an instance. */
void machine_put(struct json_writer *w, const struct machine_detail *m);
