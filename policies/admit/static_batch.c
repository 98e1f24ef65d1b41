/* static_batch.c - forms a batch when the last one is done, and refills no place in it.
 *
 * This is how FasterTransformer served, and the baseline of Orca: places of ended sessions stay
 * empty until the longest output of the batch is complete. Memory is reserved to each request's
 * limit. Deviation: an ended session returns its output at once, and pads nothing until then. */
#include "policies/admit/admit.h"

struct batch {
    bool running; /* a step of the batch was computed: it is closed */
};

static bool decide(void *state, const struct admit_view *view)
{
    struct batch *b = state;
    if (view->running == 0) b->running = false;
    return !b->running && admit_fits_grown(view);
}

static uint32_t reserve(const void *state, const struct step_session *session)
{
    (void)state;
    return session->output_max;
}

static void observe(void *state, const struct step_event *event)
{
    struct batch *b = state;
    if (event->kind == STEP_DONE) b->running = true;
}

const struct admit_policy admit_static_batch = {
    .name = "static_batch",
    .about = "form a batch when nothing runs, and refill no place before all are done",
    .source = "static batching, the baseline of Orca (OSDI 2022)",
    .state_size = sizeof(struct batch),
    .decide = decide,
    .reserve = reserve,
    .observe = observe,
};
