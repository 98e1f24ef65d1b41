/* preempt.h - the interface of preemption policies, which choose a victim and how it frees its
 * pages.
 *
 * Layer:   policies (base/core)
 * Threads: pure; the engine's device thread or the simulator calls
 * Rules:   (1) victims are sessions that hold pages without running, then a paused one, then the
 *              running one of highest rank; equal ranks: the later arrival, then the higher id
 *          (2) at least one running session keeps a rank below all others until it is done, else
 *              two sessions could take each other's pages for ever
 *          (3) PREEMPT_NOT counts only if a waiting session wants the pages; a running session
 *              always gets them
 */
#pragma once
#include "policies/step.h"

enum preempt_how { PREEMPT_NOT, PREEMPT_RECOMPUTE, PREEMPT_SWAP };

struct preempt_view {
    const struct step_session *victim;
    const struct step_session *newcomer; /* waits for the pages; NULL: a running one wants them */
    bool can_swap;                       /* there is room in the swap space */
    double swap_s;      /* to copy the victim's pages out and in again; every running session waits
                         * for both */
    double recompute_s; /* to compute the victim's tokens again */
    uint32_t running;   /* sessions running now */
};

struct preempt_policy {
    const char *name;
    const char *about;
    const char *source;
    double (*rank)(const struct step_session *session);
    enum preempt_how (*how)(const struct preempt_view *view); /* NULL: preempt_cheaper */
};

#define POLICY(name) extern const struct preempt_policy preempt_##name;
#include "policies/preempt/preempt.def"
#undef POLICY

extern const struct preempt_policy *const preempt_table[];
extern const uint32_t preempt_count;
#define PREEMPT_DEFAULT "newest"

const struct preempt_policy *preempt_find(struct str name); /* NULL when there is none */

/* Returns PREEMPT_SWAP if a swap is possible and costs no more than computing again, else
 * PREEMPT_RECOMPUTE. */
enum preempt_how preempt_cheaper(const struct preempt_view *view);
