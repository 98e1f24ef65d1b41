/* t_explain.c - tests decisions in words, and recorded decisions replayed with another policy. */
#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/io/file.h"
#include "cli/command.h"
#include "cli/load/cmd_replay.h"
#include "tests/unit/unit.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- decisions in words: known values are told, unknown ones are called unknown ---- */

/* A reply of /api/v1/decisions. */
static const char whole[] =
    "{\"id\":7,\"decision\":{\"at_us\":1000000,\"service\":\"chat\",\"policy\":\"work\","
    "\"reason\":\"work exceeds the fleet\",\"blocked\":\"the budget\",\"hold_s\":12,"
    "\"inputs\":{\"demand_known\":true,\"arrivals_per_s\":2.5,\"late_refused_per_s\":0.4,"
    "\"uncached_prompt_tokens_mean\":100,"
    "\"output_tokens_mean\":40,\"in_flight\":3,\"waiting\":1,\"held\":0,\"idle_s\":0.2,\"demand_"
    "age_s\":1.5,"
    "\"expected\":{\"count\":30,\"prompt_tokens_p90\":400,\"output_tokens_p90\":90},\"queued\":"
    "null,"
    "\"routers_fresh\":true,\"reports_fresh\":2,\"reports_expected\":2},"
    "\"ready\":{\"small\":1,\"large\":0},\"have\":{\"small\":2,\"large\":0},"
    "\"want\":{\"small\":2,\"large\":1},\"target\":{\"small\":2,\"large\":1},\"load\":2.4,"
    "\"estimate_ttft_s\":0.4,\"runner_up\":{\"want\":{\"small\":4,\"large\":0},"
    "\"cost_per_h\":0.4,\"why_not\":\"dearer\"},\"cost_per_h\":0.2,\"cost_per_h_after\":0.42,"
    "\"budget_per_h\":0.5,\"place\":\"joint\",\"placed\":[{\"pool\":\"small\",\"reason\":"
    "\"spot\",\"cost_per_h\":0.1,\"short_share\":0.02},{\"pool\":\"large\",\"reason\":"
    "\"first\",\"cost_per_h\":0.2,\"short_share\":null}],\"actions\":[{\"act\":\"launch\",\"pool\":"
    "\"large\",\"offer\":\"big\","
    "\"instance\":\"i-1\",\"price_per_h\":0.22,\"lead_s\":5},"
    "{\"act\":\"drain\",\"pool\":\"small\",\"instance\":\"i-2\"}]}}";

static const char bare[] =
    "{\"id\":8,\"decision\":{\"at_us\":1000000,\"service\":\"chat\",\"policy\":\"static\","
    "\"reason\":\"keep\",\"blocked\":null,\"inputs\":{\"demand_known\":false,"
    "\"routers_fresh\":false,\"reports_fresh\":0,\"reports_expected\":1},\"ready\":{\"a\":1},"
    "\"have\":{\"a\":1},\"want\":{\"a\":1},\"target\":{\"a\":1},\"load\":0,"
    "\"estimate_ttft_s\":null,\"runner_up\":null,\"cost_per_h\":0.1,\"cost_per_h_after\":0.1,"
    "\"actions\":[]}}";

static const char of_roles[] =
    "{\"id\":9,\"decision\":{\"at_us\":1000000,\"service\":\"chat\",\"kind\":\"role\","
    "\"policy\":\"distserve\",\"reason\":\"as many of each\",\"inputs\":{\"demand_known\":true,"
    "\"arrivals_per_s\":2.5,\"uncached_prompt_tokens_mean\":100,\"output_tokens_mean\":40,"
    "\"in_flight\":3,\"waiting\":1,\"held\":0,\"idle_s\":0.2,\"demand_age_s\":1.5,"
    "\"link_bytes_per_s\":1000000000,\"kv_token_bytes\":2048},\"goodput_rps\":3.5,"
    "\"runner_up_rps\":3.25,\"actions\":[{\"act\":\"role\",\"pool\":\"large\",\"instance\":"
    "\"i-1\",\"was\":\"both\",\"role\":\"prefill\"}]}}";

static const char of_held_roles[] =
    "{\"id\":9,\"decision\":{\"at_us\":1000000,\"service\":\"chat\",\"kind\":\"role\","
    "\"policy\":null,\"reason\":\"as the pools have them\",\"inputs\":{\"demand_known\":false,"
    "\"link_bytes_per_s\":1000000000,\"kv_token_bytes\":2048},\"goodput_rps\":null,"
    "\"runner_up_rps\":null,\"actions\":[]}}";

static void says(const struct buf *out, const char *part)
{
    if (!strstr(out->data, part)) fail_msg("'%s' is missing in:\n%s", part, out->data);
}

static void everything_known_is_told(void **state)
{
    static const char *const parts[] = {
        "decision 7 for chat, 1m00s ago",
        "0.40 of them a second were refused, because the fleet is overloaded",
        "2.50 requests a second of 100 uncached prompt tokens and 40 expected output tokens",
        "3 in flight, 1 of them waiting, 0 held for an instance; last arrival 0.2s before,",
        "as routers told it at most 1.5s before\n",
        "lengths of 30 in five minutes: nine in ten prompts below 400 tokens, answers below 90\n",
        "2 of 2 ready instances and of every router were fresh",
        "1 small, 0 large ready; with those starting 2 small, 0 large",
        "wanted     2 small, 1 large; decided 2 small, 1 large",
        "work exceeds the fleet (policy work, load of 2.40 instances)",
        "held back  the budget, for another 12s",
        "first token after 0.40 s",
        "instead of 4 small, 0 large at $0.40 an hour: dearer",
        "$0.20 an hour then, $0.42 an hour after; the budget is $0.50",
        "placed     small: spot, $0.10 an hour for what should stand, short of it for a share of "
        "0.02\n",
        "placed     large: first, $0.20 an hour for what should stand\n",
        "launch i-1 in pool large, offer big at $0.22 an hour, ready in about 5.0s",
        "drain i-2 in pool small\n",
    };
    CLEANUP(buf_fini) struct buf out = { 0 };
    (void)state;
    assert_int_equal(explain_decision(str_from(whole), 61000000, &out), 0);
    for (size_t i = 0; i < COUNT_OF(parts); i++)
        says(&out, parts[i]);
}

static void the_unknown_is_no_zero(void **state)
{
    CLEANUP(buf_fini) struct buf out = { 0 };
    (void)state;
    assert_int_equal(explain_decision(str_from(bare), 1000000, &out), 0);
    says(&out, "no demand: no router had reported lately");
    says(&out, "0 of 1 ready instances were fresh; not every router's was");
    says(&out, "instead of nothing: there was no other choice");
    says(&out, "done       nothing");
    assert_null(strstr(out.data, "held back"));
    assert_null(strstr(out.data, "expected"));
    assert_null(strstr(out.data, "budget"));
    assert_null(strstr(out.data, "placed"));
}

static void what_is_no_decision_is_refused(void **state)
{
    static const char *const texts[] = { "", "{}", "[]", "{\"id\":1,\"decision\":{}}",
                                         "{\"id\":1,\"decision\":{\"actions\":{}}}" };
    (void)state;
    for (size_t i = 0; i < COUNT_OF(texts); i++) {
        CLEANUP(buf_fini) struct buf out = { 0 };
        if (explain_decision(str_from(texts[i]), 0, &out) >= 0) fail_msg("taken: %s", texts[i]);
    }
}

/* Every proper prefix of a reply is refused, except the one that lacks only the outermost brace. */
static void cut_answers_do_no_harm(void **state)
{
    (void)state;
    for (size_t len = 0; len < sizeof whole - 2; len++) {
        CLEANUP(buf_fini) struct buf out = { 0 };
        assert_true(explain_decision(str_of(whole, len), 0, &out) < 0);
    }
}

static void roles_are_told(void **state)
{
    static const char *const parts[] = {
        "decision 9 for chat, 1m00s ago",
        "seen       2.50 requests a second of 100 uncached prompt tokens",
        "K and V of a token are 2048 bytes, 1000000000 of them copied in a second\n",
        "reason     as many of each (role policy distserve)\n",
        "expected   3.50 requests a second within the SLO; 3.25 by the next best\n",
        "           i-1 in pool large: prefill, was both\n",
    };
    CLEANUP(buf_fini) struct buf out = { 0 };
    (void)state;
    assert_int_equal(explain_decision(str_from(of_roles), 61000000, &out), 0);
    for (size_t i = 0; i < COUNT_OF(parts); i++)
        says(&out, parts[i]);
    buf_clear(&out);
    assert_int_equal(explain_decision(str_from(of_held_roles), 61000000, &out), 0);
    says(&out, "seen       no demand: no router had reported lately");
    says(&out, "reason     as the pools have them\n");
    assert_null(strstr(out.data, "expected"));
    assert_null(strstr(out.data, "role policy"));
}

static int explain_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(everything_known_is_told),
        cmocka_unit_test(the_unknown_is_no_zero),
        cmocka_unit_test(roles_are_told),
        cmocka_unit_test(what_is_no_decision_is_refused),
        cmocka_unit_test(cut_answers_do_no_harm),
    };
    return cmocka_run_group_tests_name("explain", tests, NULL, NULL);
}

/* ---- records: they read back as written, and another policy decides on each recorded view ---- */

static struct route_instance in[2];

/* Writes `count` decisions by round_robin; every request's prompt is cached at instance 4. */
static uint64_t write_record(const char *path, uint64_t bytes_max, uint32_t count)
{
    struct record *r = NULL;
    assert_int_equal(record_open(path, bytes_max, route_find(STR("round_robin")), &r, NULL), 0);
    const struct dispatch_watch *w = record_watch(r);
    for (uint32_t i = 0; i < 2; i++) {
        in[i] = (struct route_instance){ .id = 4 + i,
                                         .accepts = true,
                                         .has_perf = true,
                                         .perf = { .prefill_token_s = 1e-3 },
                                         .token_budget = 512,
                                         .seqs_max = 4 };
    }
    in[0].hit_tokens = 60;
    struct route_view view = { .instance = in, .instance_count = 2, .has_load = true };
    struct route_req req = { .prompt_tokens = 100, .output_mean = 10, .tenant = 3 };
    for (uint32_t i = 0; i < count; i++) {
        struct route_verdict v;
        route_answer(&view, &req, i % 2, ROUTE_NONE, &v);
        w->decided(w->arg, i + 1, &view, &req, &v, i * 1000);
        struct route_event ev = { .kind = ROUTE_SENT,
                                  .instance_id = 4 + i % 2,
                                  .prompt_tokens = 100 };
        w->event(w->arg, i + 1, &ev);
    }
    return record_close(r);
}

static void read_back(const char *path, struct buf *file)
{
    assert_int_equal(file_read(path, 1 << 20, file, NULL), 0);
    unlink(path);
}

static char path[64];

static int make_path(void **state)
{
    (void)state;
    snprintf(path, sizeof path, "/tmp/muster-record-XXXXXX");
    int fd = mkstemp(path);
    return fd < 0 ? -1 : close(fd);
}

static void entries_come_back(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf file = { 0 };
    assert_int_equal(write_record(path, 1 << 20, 3), 0);
    read_back(path, &file);
    static struct record_reader reader;
    struct record_entry e;
    assert_int_equal(record_read_begin(&reader, buf_view(&file), NULL), 0);
    assert_int_equal(record_read(&reader, &e, NULL), 1);
    assert_string_equal(e.row, "round_robin");
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(record_read(&reader, &e, NULL), 1);
        assert_int_equal(e.kind, RECORD_DECISION);
        assert_int_equal(e.id, i + 1);
        assert_int_equal(e.at_us, i * 1000);
        assert_int_equal(e.view.instance_count, 2);
        assert_memory_equal(e.view.instance, in, sizeof in);
        assert_int_equal(e.verdict.instance_id, 4 + i % 2);
        assert_int_equal(record_read(&reader, &e, NULL), 1);
        assert_int_equal(e.kind, RECORD_EVENT);
        assert_int_equal(e.event.instance_id, 4 + i % 2);
    }
    assert_int_equal(record_read(&reader, &e, NULL), 0);
}

static void the_bound_ends_a_record_at_a_whole_entry(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf file = { 0 };
    uint64_t left_out = write_record(path, 4000, 100);
    assert_true(left_out > 0);
    read_back(path, &file);
    assert_true(file.len <= 4000);
    static struct record_reader reader;
    struct record_entry e;
    record_read_begin(&reader, buf_view(&file), NULL);
    uint64_t entries = 0;
    while (record_read(&reader, &e, NULL) == 1)
        entries++;
    assert_int_equal(reader.rest.len, 0);
    assert_int_equal(entries + left_out, 201);
}

static void a_row_is_judged_by_the_views_alone(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf file = { 0 };
    write_record(path, 1 << 20, 10);
    read_back(path, &file);
    struct judgement j;
    assert_int_equal(
        route_replay_record(buf_view(&file), route_find(STR("shortest_ttft")), 1, &j, NULL), 0);
    assert_string_equal(j.recorded, "round_robin");
    assert_int_equal(j.decisions, 10);
    assert_int_equal(j.agreed, 5);
    assert_int_equal(j.judged, 10);
    assert_true(j.regret.mean_s == 0);
    assert_true(fabs(j.regret_recorded.mean_s - 0.03) < 1e-9); /* 60 ms every other time */
    assert_true(fabs(j.regret_recorded.p99_s - 0.06) < 1e-9);
    assert_int_equal(j.hit_tokens, 600);
    assert_int_equal(j.hit_tokens_recorded, 300);
    assert_int_equal(
        route_replay_record(buf_view(&file), route_find(STR("round_robin")), 1, &j, NULL), 0);
    assert_int_equal(j.agreed, 10);
    assert_true(isnan(j.margin_s)); /* round_robin has no second choice */
}

static void how_near_second_choices_came_is_told(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf file = { 0 };
    struct record *r = NULL;
    write_record(path, 1 << 20, 0); /* fills `in` */
    assert_int_equal(record_open(path, 1 << 20, route_find(STR("shortest_ttft")), &r, NULL), 0);
    struct route_view view = { .instance = in, .instance_count = 2 };
    struct route_req req = { .prompt_tokens = 100, .output_mean = 10 };
    for (uint64_t id = 1; id <= 4; id++) {
        struct route_verdict v;
        bool alone = id == 4; /* its missing second choice is left out, not counted as 0 */
        route_answer(&view, &req, 0, alone ? ROUTE_NONE : 1, &v);
        if (!alone) v.runner_up_s = v.estimate_s + 0.01 * (double)id;
        record_watch(r)->decided(record_watch(r)->arg, id, &view, &req, &v, 0);
    }
    assert_int_equal(record_close(r), 0);
    read_back(path, &file);
    struct judgement j;
    assert_int_equal(
        route_replay_record(buf_view(&file), route_find(STR("round_robin")), 1, &j, NULL), 0);
    assert_true(fabs(j.margin_s - 0.02) < 1e-9);
}

/* Right after a start no speed is known: the regret is absent, not zero. */
static void without_speeds_there_is_no_regret(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf file = { 0 };
    struct record *r = NULL;
    assert_int_equal(record_open(path, 1 << 20, route_find(STR("round_robin")), &r, NULL), 0);
    struct route_instance one = { .id = 1, .accepts = true, .token_budget = 512, .seqs_max = 4 };
    struct route_view view = { .instance = &one, .instance_count = 1 };
    struct route_req req = { .prompt_tokens = 100, .output_mean = 10 };
    struct route_verdict v;
    route_answer(&view, &req, 0, ROUTE_NONE, &v);
    record_watch(r)->decided(record_watch(r)->arg, 1, &view, &req, &v, 0);
    assert_int_equal(record_close(r), 0);
    read_back(path, &file);
    struct judgement j;
    assert_int_equal(
        route_replay_record(buf_view(&file), route_find(STR("round_robin")), 1, &j, NULL), 0);
    assert_int_equal(j.decisions, 1);
    assert_int_equal(j.judged, 0);
    assert_true(isnan(j.regret.mean_s) && isnan(j.regret.p50_s) && isnan(j.regret.p99_s));
    assert_true(isnan(j.regret_recorded.mean_s));
}

static void what_is_no_record_is_refused(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf file = { 0 };
    struct err err = { 0 };
    struct judgement j;
    const struct route_policy *chosen = route_find(STR("random"));
    assert_int_equal(route_replay_record(STR("{\"not\":\"one\"}"), chosen, 1, &j, &err), -EINVAL);
    write_record(path, 1 << 20, 2);
    read_back(path, &file);
    struct str cut = str_of(file.data, file.len - 10); /* a crash tears the last entry */
    assert_int_equal(route_replay_record(cut, chosen, 1, &j, &err), 0);
    assert_int_equal(j.decisions, 2);
    assert_true(j.torn);
    assert_int_equal(j.entries, 4); /* a policy, two decisions and two events */
    assert_int_equal(route_replay_record(buf_view(&file), chosen, 1, &j, &err), 0);
    assert_false(j.torn);
    assert_int_equal(j.entries, 5);
    cut = str_of(file.data, file.len - sizeof(struct route_event)); /* behind an entry's header */
    assert_int_equal(route_replay_record(cut, chosen, 1, &j, &err), 0);
    assert_true(j.torn);
    cut = str_of(file.data, 28 + 100); /* the first decision is torn: nothing can be judged */
    assert_int_equal(route_replay_record(cut, chosen, 1, &j, &err), -ENODATA);
    assert_non_null(strstr(err.text, "ends within an entry"));
    file.data[8] ^= 1; /* version */
    assert_int_equal(route_replay_record(buf_view(&file), chosen, 1, &j, &err), -EINVAL);
    file.data[8] ^= 1;
    /* A damaged byte may give an error or a result, never a crash. */
    for (size_t i = 28; i < file.len; i++) {
        char was = file.data[i];
        file.data[i] = (char)~was;
        route_replay_record(buf_view(&file), chosen, 1, &j, &err);
        route_replay_record(buf_view(&file), route_find(STR("completion")), 1, &j, &err);
        file.data[i] = was;
    }
    write_record(path, 1 << 20, 0);
    buf_clear(&file);
    read_back(path, &file);
    assert_int_equal(route_replay_record(buf_view(&file), chosen, 1, &j, &err), -ENODATA);
}

static int route_replay_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(entries_come_back, make_path),
        cmocka_unit_test_setup(the_bound_ends_a_record_at_a_whole_entry, make_path),
        cmocka_unit_test_setup(a_row_is_judged_by_the_views_alone, make_path),
        cmocka_unit_test_setup(how_near_second_choices_came_is_told, make_path),
        cmocka_unit_test_setup(without_speeds_there_is_no_regret, make_path),
        cmocka_unit_test_setup(what_is_no_record_is_refused, make_path),
    };
    return cmocka_run_group_tests_name("route_replay", tests, NULL, NULL);
}

int main(void)
{
    return explain_tests() + route_replay_tests();
}
