/* s3.c - packs memory by predicted length, doubles on overrun (S3, arXiv 2306.06000).
 *
 *     reserve = predicted output, rounded up to whole bins of 52 tokens (ten reach to 512)
 *     admit   : needed + reserve + unused reserves of running sessions fit; else try the next
 *     overrun : generated reaches the reserve -> back to the queue with twice the reserve
 *
 * With order largest_first this is the paper's decreasing first fit. Without a prediction a session
 * reserves its whole limit, as in systems before S3. The bins are those of predict s3; a longer
 * output takes as many as it needs. */
#include "policies/admit/admit.h"

#define BIN_TOKENS 52

static bool decide(void *state, const struct admit_view *view)
{
    (void)state;
    return admit_fits_grown(view);
}

static uint32_t reserve(const void *state, const struct step_session *session)
{
    (void)state;
    uint64_t most = session->output_max;
    uint64_t predicted = session->predicted_mean ? session->predicted_mean : session->predicted_p50;
    if (predicted == 0) return session->output_max;
    uint64_t tokens = (predicted + BIN_TOKENS - 1) / BIN_TOKENS * BIN_TOKENS;
    tokens <<= session->scratch->admit < 31 ? session->scratch->admit : 31; /* overruns so far */
    return (uint32_t)(tokens < most ? tokens : most);
}

static bool outgrown(void *state, const struct step_session *session)
{
    uint32_t reserved = reserve(state, session);
    if (session->generated < reserved || reserved >= session->output_max) return false;
    session->scratch->admit++;
    return true;
}

const struct admit_policy admit_s3 = {
    .name = "s3",
    .about = "reserve the predicted length bin, try the next that fits, double on overrun",
    .source = "S3 (arXiv 2306.06000)",
    .first_fit = true,
    .decide = decide,
    .reserve = reserve,
    .outgrown = outgrown,
};
