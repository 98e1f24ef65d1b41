/* f_replay.c - reads any bytes as a router's record of decisions, put to a routing policy as `muster
 * replay` does, and as the saved state of a predictor.
 *
 * Both are structs as they lie in memory, so that every field may hold anything. The first byte selects
 * one: below 128 a record and the policy to ask, else a predictor and the state that it merges, behind
 * a correct header, because otherwise the digest would refuse every input. */
#include "base/core/bits.h"
#include "base/core/buf.h"
#include "base/core/own.h"
#include "cli/load/cmd_replay.h"
#include "policies/predict/predict.h"
#include "router/record.h"
#include "tests/fuzz/fuzz.h"

#include <math.h>
#include <stdlib.h>

/* Checks what policies rely on: they index tables by the reader's values and divide by them. */
static void check_entry(const struct record_entry *e)
{
    must(e->kind < RECORD_KIND_COUNT);
    if (e->kind == RECORD_ROW) must(memchr(e->row, 0, sizeof e->row) != NULL);
    if (e->kind == RECORD_EVENT) must(e->event.instance_id < DISPATCH_ENDPOINTS);
    if (e->kind != RECORD_DECISION) return;
    must(e->req.prompt_tokens > 0 && e->view.instance_count <= DISPATCH_ENDPOINTS);
    for (uint32_t i = 0; i < e->view.instance_count; i++) {
        const struct route_instance *in = &e->view.instance[i];
        must(in->id < DISPATCH_ENDPOINTS && in->token_budget > 0 && in->seqs_max > 0);
        must(!in->has_perf || perf_coef_valid(&in->perf));
    }
}

static void read_all(struct str file)
{
    static struct record_reader r;
    static struct record_entry e;
    struct err err = { 0 };
    int rc = record_read_begin(&r, file, &err);
    if (rc == 0) rc = record_read(&r, &e, &err);
    for (; rc == 1; rc = record_read(&r, &e, &err))
        check_entry(&e);
    must(rc == 0 || err.text[0]);
}

static void judge(struct str file, uint8_t which)
{
    struct judgement j;
    struct err err = { 0 };
    read_all(file);
    int rc = route_replay_record(file, route_table[which % route_count], 1, &j, &err);
    must(rc == 0 || err.text[0]);
    if (rc < 0) return;
    must(j.decisions > 0 && j.agreed + j.refused <= j.decisions && j.judged <= j.decisions);
    must(memchr(j.recorded, 0, sizeof j.recorded) != NULL);
}

static void check_verdict(const struct predict_policy *policy, const void *state)
{
    const struct predict_features f = { .tenant = 1,
                                        .prefix = 2,
                                        .ask = 3,
                                        .prompt_tokens = 100,
                                        .output_max = 500,
                                        .group = 4,
                                        .text = STR("why") };
    struct predict_verdict v;
    policy->decide(state, &f, &v);
    /* NaN fails too. */
    must(v.mean >= 1 && v.mean <= 500 && v.p50 >= 1 && v.p50 <= 500 && v.p90 >= 1 && v.p90 <= 500);
}

/* Merges a saved state: a new one, overwritten as far as the bytes go. */
static void take_in(struct str bytes, uint8_t which)
{
    const struct predict_policy *policy = predict_table[which % predict_count];
    if (policy->needs & (PREDICT_TRUTH | PREDICT_HIDDEN)) return;
    CLEANUP(buf_fini) struct buf saved = { .max = PREDICT_STATE_BYTES_MAX + PREDICT_HEADER_BYTES };
    uint8_t head[PREDICT_HEADER_BYTES];
    char *state = calloc(1, policy->state_size + 1u), *other = calloc(1, policy->state_size + 1u);
    must(state && other);
    policy->init(state);
    policy->init(other);
    memcpy(other, bytes.data, min_size(bytes.len, policy->state_size));
    predict_header(policy, other, head);
    buf_append(&saved, head, sizeof head);
    buf_append(&saved, other, policy->state_size);
    must(saved.rc == 0);
    if (predict_header_check(policy, buf_view(&saved)) == 0) {
        policy->merge(state, other);
        check_verdict(policy, state);
    }
    saved.data[saved.len - 1] ^= 1; /* one bit on the way */
    if (policy->state_size > 0) must(predict_header_check(policy, buf_view(&saved)) < 0);
    free(state);
    free(other);
}

/* Hundreds of instances are scored for one decision; a state of megabytes is merged for one byte. */
const struct fuzz_cost fuzz_cost = { 20000000, 20000 };

void fuzz_one(const uint8_t *data, size_t len)
{
    if (len < 2) return;
    struct str rest = str_of(data + 1, len - 1);
    if (data[0] < 128)
        judge(rest, data[0]);
    else
        take_in(rest, data[0]);
}
