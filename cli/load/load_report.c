/* load_report.c - exact percentiles by sorting; concordance over all pairs of a sample. */
#include "cli/load/load_report.h"

#include "base/core/bits.h"

#include <math.h>
#include <stdlib.h>

#define PAIRS_FROM 2000 /* concordance compares the pairs of at most so many requests */

static double tpot_s(const struct load_sample *s)
{
    return (double)(s->e2e_us - s->ttft_us) * 1e-6 / (double)(s->output_tokens - 1);
}

/* A request of one token has no TPOT to miss. */
static bool meets(const struct load_sample *s, struct load_slo slo)
{
    if (s->outcome != LOAD_OK || (double)s->ttft_us * 1e-6 > slo.ttft_s) return false;
    return s->output_tokens < 2 || tpot_s(s) <= slo.tpot_s;
}

/* Of requests with a prediction: the share of pairs ordered rightly (a tie of predictions is half
 * right) and the share of lengths within P90. */
static void route_replay_predictions(const struct load_sample *const *s, uint32_t count,
                                     struct load_report *r)
{
    double pairs = 0, right = 0, covered = 0;
    for (uint32_t i = 0; i < count; i++) {
        covered += (double)s[i]->output_tokens <= s[i]->predicted_p90;
        for (uint32_t j = 0; j < i && i < PAIRS_FROM; j++) {
            if (s[i]->output_tokens == s[j]->output_tokens) continue;
            pairs += 1;
            double guess = s[i]->predicted_p50 - s[j]->predicted_p50;
            bool longer = s[i]->output_tokens > s[j]->output_tokens;
            right += guess == 0 ? 0.5 : (guess > 0) == longer ? 1 : 0;
        }
    }
    r->concordance = pairs > 0 ? right / pairs : -1;
    r->p90_coverage = count > 0 ? covered / (double)count : -1;
}

struct scratch {
    double *ttft, *tpot, *e2e;
    const struct load_sample **predicted;
    uint32_t ttft_count, tpot_count, predicted_count;
};

static void add_sample(struct load_report *r, struct scratch *t, const struct load_sample *s)
{
    r->sent++;
    r->duration_s = (double)max_i64((int64_t)(r->duration_s * 1e6), s->due_us + s->e2e_us) * 1e-6;
    r->attainment += meets(s, r->slo);
    r->prompt_tokens += s->prompt_tokens;
    r->cached_tokens += s->cached_tokens;
    r->output_tokens += s->output_tokens;
    if (s->outcome != LOAD_OK) {
        r->failed++;
        r->failed_by[s->outcome]++;
        return;
    }
    r->ok++;
    t->ttft[t->ttft_count] = (double)s->ttft_us * 1e-6;
    t->e2e[t->ttft_count++] = (double)s->e2e_us * 1e-6;
    if (s->output_tokens > 1) t->tpot[t->tpot_count++] = tpot_s(s);
    if (s->predicted_p90 > 0 && !s->cut_by_limit) t->predicted[t->predicted_count++] = s;
}

int load_report_make(const struct load_sample *sample, uint32_t count,
                     bool (*include)(void *arg, uint32_t index), void *arg, const float *itl_s,
                     size_t itl_count, struct load_slo slo, struct load_report *ret)
{
    struct load_report r = { .slo = slo };
    struct scratch t = { .ttft = malloc(count * sizeof *t.ttft),
                         .tpot = malloc(count * sizeof *t.tpot),
                         .e2e = malloc(count * sizeof *t.e2e),
                         .predicted = malloc(count * sizeof *t.predicted) };
    double *gap = malloc((itl_count + 1) * sizeof *gap);
    int rc = t.ttft && t.tpot && t.e2e && t.predicted && gap ? 0 : -ENOMEM;
    for (uint32_t i = 0; rc == 0 && i < count; i++) {
        if (!include || include(arg, i)) add_sample(&r, &t, &sample[i]);
    }
    if (rc == 0) {
        for (size_t i = 0; i < itl_count; i++)
            gap[i] = (double)itl_s[i];
        r.itl_s = stats_quantiles(gap, (uint32_t)itl_count);
        r.ttft_s = stats_quantiles(t.ttft, t.ttft_count);
        r.e2e_s = stats_quantiles(t.e2e, t.ttft_count);
        r.tpot_s = stats_quantiles(t.tpot, t.tpot_count);
        route_replay_predictions(t.predicted, t.predicted_count, &r);
        r.goodput_rps = r.duration_s > 0 ? r.attainment / r.duration_s : 0;
        if (r.sent > 0) r.attainment /= (double)r.sent;
        *ret = r;
    }
    free(t.ttft);
    free(t.tpot);
    free(t.e2e);
    free(t.predicted);
    free(gap);
    return rc;
}

void load_requests_json(struct json_writer *w, const struct load_report *r)
{
    json_key(w, "requests");
    json_object(w);
    json_kv_u64(w, "sent", r->sent);
    json_kv_u64(w, "ok", r->ok);
    json_kv_u64(w, "failed", r->failed);
    json_object_end(w);
}

void load_tokens_json(struct json_writer *w, const struct load_report *r)
{
    json_key(w, "tokens");
    json_object(w);
    json_kv_u64(w, "prompt", r->prompt_tokens);
    json_kv_u64(w, "cached", r->cached_tokens);
    json_kv_u64(w, "generated", r->output_tokens);
    json_object_end(w);
}

void load_slo_json(struct json_writer *w, const struct load_report *r)
{
    json_key(w, "slo");
    json_object(w);
    json_kv_f64(w, "ttft_s", r->slo.ttft_s);
    json_kv_f64(w, "tpot_s", r->slo.tpot_s);
    json_kv_f64(w, "attainment", r->attainment);
    json_object_end(w);
}

void load_report_json(const struct load_report *r, struct json_writer *w)
{
    json_object(w);
    load_requests_json(w, r);
    json_key(w, "failures");
    json_object(w);
    for (enum load_outcome o = LOAD_REFUSED; o < LOAD_OUTCOME_COUNT; o++) {
        json_kv_u64(w, load_outcome_name(o), r->failed_by[o]);
    }
    json_object_end(w);
    load_tokens_json(w, r);
    stats_quantiles_json(w, "ttft_s", &r->ttft_s);
    stats_quantiles_json(w, "tpot_s", &r->tpot_s);
    stats_quantiles_json(w, "itl_s", &r->itl_s);
    stats_quantiles_json(w, "e2e_s", &r->e2e_s);
    load_slo_json(w, r);
    json_kv_f64(w, "goodput_rps", r->goodput_rps);
    json_kv_f64(w, "duration_s", r->duration_s);
    json_key(w, "length_prediction");
    json_object(w);
    if (r->concordance >= 0) json_kv_f64(w, "concordance", r->concordance);
    if (r->p90_coverage >= 0) json_kv_f64(w, "p90_coverage", r->p90_coverage);
    json_object_end(w);
    json_object_end(w);
}

static void row(struct buf *out, const char *name, const struct stats_quantiles *q)
{
    if (isnan(q->mean)) return;
    buf_printf(out, "%-6s %9.1f %9.1f %9.1f %9.1f\n", name, 1e3 * q->mean, 1e3 * q->p50,
               1e3 * q->p90, 1e3 * q->p99);
}

int load_report_table(const struct load_report *r, struct buf *out)
{
    buf_printf(out, "requests  %u sent, %u ok, %u failed", r->sent, r->ok, r->failed);
    for (enum load_outcome o = LOAD_REFUSED; o < LOAD_OUTCOME_COUNT; o++) {
        if (r->failed_by[o]) buf_printf(out, ", %u %s", r->failed_by[o], load_outcome_name(o));
    }
    buf_printf(out, "\ntokens    %llu prompt (%.1f %% cached), %llu generated\n",
               (unsigned long long)r->prompt_tokens,
               r->prompt_tokens ? 100.0 * (double)r->cached_tokens / (double)r->prompt_tokens : 0,
               (unsigned long long)r->output_tokens);
    buf_printf(out, "goodput   %.2f requests/s within TTFT %.0f ms and TPOT %.0f ms: %.1f %%\n",
               r->goodput_rps, 1e3 * r->slo.ttft_s, 1e3 * r->slo.tpot_s, 100 * r->attainment);
    if (r->concordance >= 0) {
        buf_printf(out, "lengths   %.2f of pairs ordered rightly, %.2f within P90\n",
                   r->concordance, r->p90_coverage);
    }
    buf_printf(out, "%-6s %9s %9s %9s %9s\n", "ms", "mean", "p50", "p90", "p99");
    row(out, "TTFT", &r->ttft_s);
    row(out, "TPOT", &r->tpot_s);
    row(out, "ITL", &r->itl_s);
    row(out, "e2e", &r->e2e_s);
    return out->rc;
}
