/* t_route_replay.c - a record comes back as it was written; another row is asked on each of its views. */
#include "base/core/bits.h"
#include "base/io/file.h"
#include "cli/load/cmd_replay.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

static struct route_instance in[2];

/* `count` decisions by round_robin: the prompt of every one is cached at instance 4. */
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
    assert_true(isnan(j.margin_s)); /* it has no second choice */
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
        bool alone = id == 4; /* no second choice counts for nothing, not for 0 */
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

/* Right after a start no speed is known: absent, not a regret of nothing. */
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
    const struct route_policy *row = route_find(STR("random"));
    assert_int_equal(route_replay_record(STR("{\"not\":\"one\"}"), row, 1, &j, &err), -EINVAL);
    write_record(path, 1 << 20, 2);
    read_back(path, &file);
    struct str cut = str_of(file.data, file.len - 10); /* a crash tears the last entry */
    assert_int_equal(route_replay_record(cut, row, 1, &j, &err), 0);
    assert_int_equal(j.decisions, 2);
    assert_true(j.torn);
    assert_int_equal(j.entries, 4); /* of a row, two decisions and two events */
    assert_int_equal(route_replay_record(buf_view(&file), row, 1, &j, &err), 0);
    assert_false(j.torn);
    assert_int_equal(j.entries, 5);
    cut = str_of(file.data, file.len - sizeof(struct route_event)); /* behind an entry's head */
    assert_int_equal(route_replay_record(cut, row, 1, &j, &err), 0);
    assert_true(j.torn);
    cut = str_of(file.data, 28 + 100); /* the first decision is torn: nothing can be judged */
    assert_int_equal(route_replay_record(cut, row, 1, &j, &err), -ENODATA);
    assert_non_null(strstr(err.text, "ends within an entry"));
    file.data[8] ^= 1; /* version */
    assert_int_equal(route_replay_record(buf_view(&file), row, 1, &j, &err), -EINVAL);
    file.data[8] ^= 1;
    /* Any damaged byte gives an answer, never a crash. */
    for (size_t i = 28; i < file.len; i++) {
        char was = file.data[i];
        file.data[i] = (char)~was;
        route_replay_record(buf_view(&file), row, 1, &j, &err);
        route_replay_record(buf_view(&file), route_find(STR("completion")), 1, &j, &err);
        file.data[i] = was;
    }
    write_record(path, 1 << 20, 0);
    buf_clear(&file);
    read_back(path, &file);
    assert_int_equal(route_replay_record(buf_view(&file), row, 1, &j, &err), -ENODATA);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(entries_come_back, make_path),
        cmocka_unit_test_setup(the_bound_ends_a_record_at_a_whole_entry, make_path),
        cmocka_unit_test_setup(a_row_is_judged_by_the_views_alone, make_path),
        cmocka_unit_test_setup(how_near_second_choices_came_is_told, make_path),
        cmocka_unit_test_setup(without_speeds_there_is_no_regret, make_path),
        cmocka_unit_test_setup(what_is_no_record_is_refused, make_path),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
