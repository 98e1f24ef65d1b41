/* s3.c - predicts one of ten equal bins, as S3 does for its reservations.
 *
 *     bin = floor(10 * length / 512), the last without an end
 *
 * S3 (2306.06000) classifies by DistilBERT into ten bins of the longest output it serves and
 * reserves the bin's upper end. Our range is 512 tokens for every trace; the classifier is that of
 * classes.h.
 */
#include "policies/predict/classes.h"
#include "policies/predict/predict.h"

static void init(void *state)
{
    static const double edge[] = { 51.2, 102.4, 153.6, 204.8, 256.0, 307.2, 358.4, 409.6, 460.8 };
    class_init(state, edge, sizeof edge / sizeof edge[0]);
}

const struct predict_policy predict_s3 = {
    .name = "s3",
    .about = "ten equal bins up to 512 tokens",
    .source = "S3 (2306.06000), on hashed words instead of DistilBERT",
    CLASS_POLICY(init),
    .observe = class_observe,
};
