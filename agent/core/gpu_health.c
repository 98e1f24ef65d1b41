/* gpu_health.c - holds the table of NVIDIA's Xids, and finds what a fault calls for.
 *
 *     Xid ──► table ──► ignore | restart | replace | broken
 *                                  │  ▲
 *                within 10 s: same ┘  └ the third within half an hour
 *
 * Codes that our table leaves out are of engines that no language model uses (video, JPEG, optical flow), of boards
 * that are not sold any more, or of NVLink's fifth generation, whose action depends on bits that NVML does not give. */
#include "agent/core/gpu_health.h"

#include "base/core/bits.h"
#include "base/core/err.h"

#include <stdio.h>
#include <string.h>

const char *const gpu_action_names[GPU_ACTION_COUNT] = { "ignore", "restart", "replace", "broken" };

// clang-format off
const struct gpu_rule gpu_rules[] = {
    {   8, GPU_RESTART, "the GPU stopped processing" },
    {  11, GPU_RESTART, "invalid or corrupted push buffer" },
    {  13, GPU_RESTART, "graphics engine exception" },
    {  25, GPU_RESTART, "invalid or illegal push buffer" },
    {  31, GPU_RESTART, "memory page fault of the program" },
    {  32, GPU_RESTART, "invalid or corrupted push buffer stream" },
    {  39, GPU_RESTART, "copy engine exception" },
    {  40, GPU_RESTART, "copy engine exception" },
    {  41, GPU_RESTART, "copy engine exception" },
    {  43, GPU_IGNORE,  "a program's channel was reset" },
    {  44, GPU_IGNORE,  "fault during a context switch" },
    {  45, GPU_IGNORE,  "channels removed after another fault, or after a program's end" },
    {  46, GPU_BROKEN,  "the GPU stopped processing" },
    {  48, GPU_REPLACE, "double bit ECC error" },
    {  54, GPU_REPLACE, "auxiliary power is not connected" },
    {  62, GPU_BROKEN,  "its power management unit halted" },
    {  63, GPU_IGNORE,  "a memory row or page was retired" },
    {  64, GPU_REPLACE, "retiring a memory row or page failed" },
    {  69, GPU_RESTART, "graphics engine class error" },
    {  70, GPU_RESTART, "copy engine exception" },
    {  71, GPU_RESTART, "copy engine exception" },
    {  72, GPU_RESTART, "copy engine exception" },
    {  74, GPU_REPLACE, "NVLink error" },
    {  79, GPU_BROKEN,  "it has fallen off the bus" },
    {  92, GPU_IGNORE,  "high rate of single bit ECC errors" },
    {  93, GPU_IGNORE,  "its InfoROM is near its wear limit" },
    {  94, GPU_RESTART, "contained memory error" },
    {  95, GPU_BROKEN,  "uncontained memory error" },
    { 109, GPU_BROKEN,  "timeout of a context switch" },
    { 110, GPU_BROKEN,  "security fault" },
    { 119, GPU_BROKEN,  "its system processor does not answer" },
    { 120, GPU_BROKEN,  "error of its system processor" },
    { 121, GPU_IGNORE,  "error of the link to the CPU" },
    { 136, GPU_REPLACE, "a link could not be trained" },
    { 140, GPU_BROKEN,  "unrecovered ECC error" },
    { 143, GPU_BROKEN,  "initialisation failed" },
    { 154, GPU_IGNORE,  "the recovery that it needs has changed" },
    { 156, GPU_REPLACE, "a part of it was retired, and a reset is needed" },
    { 158, GPU_BROKEN,  "fatal timeout" },
};
// clang-format on
const uint32_t gpu_rule_count = COUNT_OF(gpu_rules);

const struct gpu_rule *gpu_rule_find(uint32_t xid)
{
    for (uint32_t i = 0; i < gpu_rule_count; i++)
        if (gpu_rules[i].xid == xid) return &gpu_rules[i];
    return NULL;
}

static void count(struct gpu_health *h, const char *code)
{
    for (uint32_t i = 0; i < h->fault_count; i++)
        if (strcmp(h->fault[i].code, code) == 0) {
            h->fault[i].count++;
            return;
        }
    if (h->fault_count + 1 < WIRE_FAULTS_MAX || strcmp(code, "other") == 0) {
        struct gpu_fault *f = &h->fault[h->fault_count++];
        snprintf(f->code, sizeof f->code, "%s", code);
        f->count = 1;
        return;
    }
    count(h, "other");
}

/* Raises the machine's verdict; the first fault of a rank is the one that is told. */
static void judge(struct gpu_health *h, enum machine_health verdict, const struct gpu_event *e)
{
    if (verdict <= h->verdict) return;
    h->verdict = verdict;
    memcpy(h->code, e->code, sizeof h->code);
    memcpy(h->why, e->why, sizeof h->why);
}

static void add_words(struct gpu_event *e, const char *words)
{
    size_t len = strlen(e->why);
    snprintf(e->why + len, sizeof e->why - len, "%s", words);
}

/* Turns a fault of a program into an engine's restart, or into what it stands for after too many. */
static void restart(struct gpu_health *h, bool mig, int64_t now_us, struct gpu_event *e)
{
    const int64_t last_us = h->restart_us[GPU_STORM_RESTARTS - 1];
    if (mig) {
        e->action = GPU_IGNORE;
        add_words(e, "; the GPU is cut into parts (MIG), so that it may be a neighbour's");
        return;
    }
    if (last_us && now_us - last_us < GPU_SAME_US) {
        e->action = GPU_IGNORE;
        return;
    }
    memmove(h->restart_us, h->restart_us + 1, sizeof h->restart_us - sizeof h->restart_us[0]);
    h->restart_us[GPU_STORM_RESTARTS - 1] = now_us;
    if (!h->restart_us[0] || now_us - h->restart_us[0] >= GPU_STORM_US) return;
    e->action = GPU_REPLACE;
    add_words(e, ", the third fault of its kind within half an hour");
}

/* Counts the event and lets the verdict follow from its action. */
static void settle(struct gpu_health *h, bool mig, int64_t now_us, struct gpu_event *e)
{
    count(h, e->code);
    if (e->action == GPU_RESTART) restart(h, mig, now_us, e);
    if (e->action == GPU_REPLACE) judge(h, MACHINE_FAILING, e);
    if (e->action == GPU_BROKEN) judge(h, MACHINE_BROKEN, e);
}

void gpu_health_xid(struct gpu_health *h, uint32_t gpu, uint32_t xid, bool mig, int64_t now_us,
                    struct gpu_event *ret)
{
    must(gpu < WIRE_GPUS_MAX);
    const struct gpu_rule *rule = gpu_rule_find(xid);
    *ret = (struct gpu_event){ .action = rule ? rule->action : GPU_IGNORE };
    snprintf(ret->code, sizeof ret->code, "xid_%u", xid);
    snprintf(ret->why, sizeof ret->why, "GPU %u: Xid %u, %s", gpu, xid,
             rule ? rule->what : "which our table does not have");
    settle(h, mig, now_us, ret);
}

/* Finds the worst thing that these counters say and those before did not. */
static bool find_change(const struct gpu_counters *was, const struct gpu_counters *is, uint32_t gpu,
                        struct gpu_event *e)
{
    *e = (struct gpu_event){ 0 };
    const char *code = NULL;
    if (is->lost && !was->lost) {
        code = "lost";
        e->action = GPU_BROKEN;
        snprintf(e->why, sizeof e->why, "GPU %u: its driver says that it is lost", gpu);
    } else if (is->remap_known && is->remap_failed && !was->remap_failed) {
        code = "row_remap";
        e->action = GPU_REPLACE;
        snprintf(e->why, sizeof e->why, "GPU %u: a bank has no spare memory row left", gpu);
    } else if (is->retired_known && is->retired_pages >= GPU_RETIRED_PAGES_MAX &&
               was->retired_pages < GPU_RETIRED_PAGES_MAX) {
        code = "retired_pages";
        e->action = GPU_REPLACE;
        snprintf(e->why, sizeof e->why, "GPU %u: %u memory pages were retired", gpu,
                 is->retired_pages);
    } else if (is->remap_known && is->remap_pending && !was->remap_pending) {
        code = "row_remap_pending";
        e->action = GPU_IGNORE;
        snprintf(e->why, sizeof e->why, "GPU %u: a memory row is to be remapped at its next reset",
                 gpu);
    }
    if (code) snprintf(e->code, sizeof e->code, "%s", code);
    return code != NULL;
}

bool gpu_health_counters(struct gpu_health *h, uint32_t gpu, const struct gpu_counters *c, bool mig,
                         int64_t now_us, struct gpu_event *ret)
{
    must(gpu < WIRE_GPUS_MAX);
    const struct gpu_counters was = h->before[gpu];
    bool grew = h->has_before[gpu] && was.ecc_known && c->ecc_known &&
                c->ecc_uncorrectable > was.ecc_uncorrectable;
    bool changed = find_change(&was, c, gpu, ret);
    h->before[gpu] = *c;
    if (!c->ecc_known) { /* a question that got no answer is no counter of 0 */
        h->before[gpu].ecc_known = was.ecc_known;
        h->before[gpu].ecc_uncorrectable = was.ecc_uncorrectable;
    }
    h->before[gpu].lost |= was.lost;
    h->before[gpu].remap_failed |= was.remap_failed;
    h->has_before[gpu] |= c->ecc_known;
    if (grew && (!changed || ret->action == GPU_IGNORE)) {
        if (changed) settle(h, mig, now_us, ret);
        changed = true;
        ret->action = GPU_RESTART;
        snprintf(ret->code, sizeof ret->code, "ecc");
        snprintf(ret->why, sizeof ret->why, "GPU %u: %llu uncorrectable memory errors more", gpu,
                 (unsigned long long)(c->ecc_uncorrectable - was.ecc_uncorrectable));
    }
    if (changed) settle(h, mig, now_us, ret);
    return changed;
}
